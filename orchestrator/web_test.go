package orchestrator

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"muster/internal/redistest"
	"muster/internal/testutil"
	"muster/orchestrator/config"
	"muster/tasks"
)

// web sends requests to the HTTP API of a system.
type web struct {
	t      *testing.T
	url    string
	system *System
}

// reply is a response of the HTTP API.
type reply struct {
	code int
	head http.Header
	raw  string
	json map[string]any // nil if the body is not an object
}

// has checks that the JSON body has the given values, formatted with fmt.Sprint, at paths such as job.document.size.
func (r reply) has(t *testing.T, name string, code int, values map[string]string) {
	t.Helper()
	if r.code != code {
		t.Errorf("%s: got %d, want %d: %s", name, r.code, code, r.raw)
	}
	for path, want := range values {
		if got := fmt.Sprint(r.at(path)); got != want {
			t.Errorf("%s: got %s = %s, want %s in %s", name, path, got, want, r.raw)
		}
	}
}

// at returns the value at a path such as assignments.0.fence, or nil.
func (r reply) at(path string) any {
	var v any = r.json
	for name := range strings.SplitSeq(path, ".") {
		switch in := v.(type) {
		case map[string]any:
			v = in[name]
		case []any:
			var n int
			if _, err := fmt.Sscan(name, &n); err != nil || n >= len(in) {
				return nil
			}
			v = in[n]
		default:
			return nil
		}
	}
	return v
}

func (r reply) text(path string) string { return fmt.Sprint(r.at(path)) }

// serveSystem serves a system with a worker on a real Redis.
func serveSystem(t *testing.T) *web {
	t.Helper()
	return serveSystemWith(t, settings(t), slog.New(slog.DiscardHandler))
}

// serveSystemWith is serveSystem with other settings.
func serveSystemWith(t *testing.T, cfg config.Config, logger *slog.Logger) *web {
	t.Helper()
	cfg.API.Listen, cfg.API.ReadOnly = "127.0.0.1:0", false
	cfg.Jobs.CheckEvery, cfg.Jobs.MaxDocumentMB = 200*time.Millisecond, 1
	writePipeline(t, cfg, "default", "context: [customer]\nstages: [{name: create, role: creator, takes: job}, {name: validate, role: validator, takes: item}]\n")
	client := tasks.NewClient(redistest.New(t))
	s := testutil.Must(NewSystem(cfg, client, logger))(t)
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		_ = client.Close()
	})
	worker := testutil.Must(s.NewWorker("worker", true, nil))(t)
	ready := make(chan string, 1)
	testutil.Background(t, worker.Run)
	testutil.Background(t, s.Jobs.Run)
	testutil.Background(t, s.Agents.Run)
	testutil.Background(t, s.Webhooks.Run)
	testutil.Background(t, func(ctx context.Context) error { return s.serveAPI(ctx, false, func(url string) { ready <- url }) })
	return &web{t: t, url: strings.TrimSuffix(<-ready, "/ui/"), system: s}
}

func writePipeline(t *testing.T, cfg config.Config, name, text string) {
	t.Helper()
	err := os.MkdirAll(cfg.Pipelines(), 0o700)
	if err == nil {
		err = os.WriteFile(filepath.Join(cfg.Pipelines(), name+".yaml"), []byte(text), 0o600)
	}
	testutil.Ok(t, err)
}

// ask sends a request. The body is sent as JSON unless it is a string.
func (w *web) ask(method, path string, body any, head ...string) reply {
	w.t.Helper()
	var from io.Reader
	switch body := body.(type) {
	case nil:
	case string:
		from = strings.NewReader(body)
	default:
		data := testutil.Must(json.Marshal(body))(w.t)
		from = bytes.NewReader(data)
	}
	r := testutil.Must(http.NewRequestWithContext(w.t.Context(), method, w.url+path, from))(w.t)
	if from != nil {
		r.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i+1 < len(head); i += 2 {
		r.Header.Set(head[i], head[i+1])
	}
	resp := testutil.Must(http.DefaultClient.Do(r))(w.t)
	defer resp.Body.Close()
	data := testutil.Must(io.ReadAll(resp.Body))(w.t)
	out := reply{code: resp.StatusCode, head: resp.Header, raw: string(data)}
	if strings.Contains(resp.Header.Get("Content-Type"), "json") {
		if err := json.Unmarshal(data, &out.json); err != nil {
			w.t.Fatalf("%s %s: %v in %s", method, path, err, data)
		}
	}
	return out
}

// register registers an agent and returns its id.
func (w *web) register(role string) string {
	w.t.Helper()
	got := w.ask("POST", "/v1/agents", map[string]any{"name": "a-" + role, "roles": []string{role}, "capacity": 4})
	got.has(w.t, "register", 201, map[string]string{"heartbeat_seconds": "10", "lease_seconds": "30"})
	return got.text("id")
}

// held is an assignment leased by an agent.
type held struct {
	reply
	agent string
}

// lease takes one assignment.
func (w *web) lease(agent string) held {
	w.t.Helper()
	got := w.ask("POST", "/v1/agents/"+agent+"/lease", map[string]any{"max": 1, "wait_seconds": 20})
	list, _ := got.at("assignments").([]any)
	if got.code != 200 || len(list) != 1 {
		w.t.Fatalf("lease of %s: got %d %s, want one assignment", agent, got.code, got.raw)
	}
	got.json, _ = list[0].(map[string]any)
	return held{got, agent}
}

// settle calls an operation of an assignment.
func (w *web) settle(a held, operation string, fields map[string]any) reply {
	w.t.Helper()
	body := map[string]any{"agent": a.agent, "fence": a.at("fence")}
	for name, value := range fields {
		body[name] = value
	}
	return w.ask("POST", "/v1/assignments/"+a.text("id")+"/"+operation, body)
}

// becomes waits until a job has a status.
func (w *web) becomes(id, status string) reply {
	w.t.Helper()
	var got reply
	testutil.Eventually(w.t, "job "+id+" is "+status, func() bool {
		got = w.ask("GET", "/jobs/"+id, nil)
		return got.text("status") == status
	})
	return got
}

func TestLocalAPIOfAnotherRedisIsNotUsed(t *testing.T) {
	t.Parallel()
	cfg := config.Default()
	cfg.DataDir = t.TempDir()
	if c, err := LocalAPI(t.Context(), cfg); c != nil || err != nil {
		t.Errorf("without a file: got %v, %v, want no client", c, err)
	}
	w := serveSystem(t)
	remove := testutil.Must(publishAPI(cfg, w.url, "key"))(t)
	if info, err := os.Stat(localAPIFile(cfg)); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("got %v, %v, want mode 0600", info.Mode(), err)
	}
	if c, err := LocalAPI(t.Context(), cfg); c == nil || err != nil {
		t.Errorf("got %v, %v, want a client", c, err)
	}
	other := cfg
	other.Redis.URL = "redis://127.0.0.1:1/3"
	if c, err := LocalAPI(t.Context(), other); c != nil || err != nil {
		t.Errorf("with another Redis: got %v, %v, want no client", c, err)
	}
	removeOfSecond := testutil.Must(publishAPI(cfg, "http://127.0.0.1:1", "key"))(t)
	if c, err := LocalAPI(t.Context(), cfg); c != nil || err != nil {
		t.Errorf("nothing listens: got %v, %v, want no client", c, err)
	}
	remove()
	if _, err := os.Stat(localAPIFile(cfg)); err != nil {
		t.Errorf("the file of another orchestrator was removed: %v", err)
	}
	removeOfSecond()
	if _, err := os.Stat(localAPIFile(cfg)); err == nil {
		t.Error("the file remains after the orchestrator has stopped")
	}
}
