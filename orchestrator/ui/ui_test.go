package ui

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"muster/internal/addressfilter"
	"muster/internal/redistest"
	"muster/internal/testutil"
	"muster/jobs"
	"muster/jobs/agent"
	"muster/jobs/document"
	"muster/jobs/pipeline"
	"muster/orchestrator/access"
	"muster/orchestrator/event"
	"muster/tasks"
)

func TestMain(m *testing.M) { redistest.Main(m, func() error { return goleak.Find() }) }

const (
	hostile = "<script>alert(1)</script>\u202egnp.exe"
	unknown = "2f0e6b1c-6c5e-4b7e-9f49-0a4b2f6f3d13"
)

// pipelines returns a registry of the pipelines of the tests.
func pipelines(t testing.TB) *pipeline.Registry {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{
		"default": "labels: [gdpr]\nstages:\n- {name: create, role: creator, takes: job}\n- {name: validate, role: validator, takes: item, max_retries: 0}\n",
		"careful": fmt.Sprintf("description: %+q\nstages:\n- {name: create, role: creator, takes: job}\n- {name: validate, role: validator, takes: item, max_retries: 0, review: true}\n", hostile),
	} {
		testutil.Ok(t, os.WriteFile(filepath.Join(dir, name+".yaml"), []byte(text), 0o600))
	}
	r, err := pipeline.Load(dir)
	if err != nil || len(r.Broken()) > 0 {
		t.Fatalf("got %v, %v, want two pipelines", r.Broken(), err)
	}
	return r
}

// world is jobs with pages of them.
type world struct {
	*jobs.Service
	t    testing.TB
	ctx  context.Context
	docs string // the URL of a document
	h    http.Handler
}

// newWorld returns a service of jobs that runs. Change may modify the configuration.
func newWorld(t *testing.T, change func(*Config)) *world {
	t.Helper()
	client := tasks.NewClient(redistest.New(t))
	files := testutil.Serve(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "pages") }))
	filter, err := addressfilter.New(files.Listener.Addr().String())
	testutil.Ok(t, err)
	docs := document.New(document.Config{Dir: t.TempDir(), Limit: 1 << 20, Filter: filter, Owner: func(context.Context) (string, error) { return "store-1", nil }})
	w, plans := &world{t: t, docs: files.URL}, pipelines(t)
	if w.Service, err = jobs.New(jobs.Config{Client: client, Pipelines: plans.Get, Emit: jobs.Emit{Lua: event.Lua, Keys: event.Keys}, Documents: docs, Limits: jobs.Limits{CheckEvery: time.Hour}}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	w.ctx = ctx
	agents := testutil.Must(agent.New(agent.Config{Client: client, Jobs: w.Service}))(t)
	var running sync.WaitGroup
	running.Go(func() { _ = w.Run(ctx) })
	t.Cleanup(func() {
		cancel()
		running.Wait()
		_ = client.Close()
	})
	cfg := Config{
		Client: client, Jobs: w.Service, Agents: agents, Pipelines: plans, Documents: docs, Events: event.New(client.Redis()),
		Write: true, Logger: slog.New(slog.DiscardHandler),
	}
	if change != nil {
		change(&cfg)
	}
	w.h = served(cfg)
	return w
}

// served serves all pages to an operator named Ada.
func served(cfg Config) http.Handler {
	pages := http.NewServeMux()
	for _, r := range Routes(cfg) {
		pages.Handle(r.Pattern, r.Handler)
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		pages.ServeHTTP(w, r.WithContext(access.WithCaller(r.Context(), access.Caller{Name: "Ada", Role: access.Operator})))
	})
}

func get(t *testing.T, h http.Handler, path string) (code int, body string) {
	t.Helper()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, prefix+path, nil))
	return w.Code, w.Body.String()
}

// showsText checks that a page has texts, nothing that is active, and is not large.
func showsText(t *testing.T, h http.Handler, path string, texts ...string) {
	t.Helper()
	code, body := get(t, h, path)
	if code != http.StatusOK || len(body) > 150<<10 {
		t.Errorf("%s: got %d with %d bytes, want 200 with at most 150 KB", path, code, len(body))
	}
	for _, text := range texts {
		if !strings.Contains(body, text) {
			t.Errorf("%s: got a page without %q:\n%s", path, text, body)
		}
	}
	for _, bad := range []string{"<script>alert", "\u202e", "\x1b"} {
		if strings.Contains(body, bad) {
			t.Errorf("%s: got a page with %q", path, bad)
		}
	}
}

var formToken = regexp.MustCompile(`name="muster_form" value="([0-9a-f]+)"`)

// act opens the form of an action and submits it. It returns the response.
func act(t testing.TB, h http.Handler, path string, fields url.Values) *httptest.ResponseRecorder {
	t.Helper()
	asked := httptest.NewRecorder()
	h.ServeHTTP(asked, httptest.NewRequestWithContext(t.Context(), http.MethodGet, prefix+path, nil))
	token := formToken.FindStringSubmatch(asked.Body.String())
	if asked.Code != http.StatusOK || token == nil {
		return asked
	}
	form := url.Values{"muster_form": {token[1]}}
	for name, v := range fields {
		form[name] = v
	}
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, prefix+path, strings.NewReader(form.Encode()))
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	r.AddCookie(asked.Result().Cookies()[0])
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

// done makes a change, and checks where it leads to.
func (w *world) done(path string, fields url.Values, to string) string {
	w.t.Helper()
	got := act(w.t, w.h, path, fields)
	if got.Code != http.StatusSeeOther || !strings.HasPrefix(got.Header().Get("Location"), to) {
		w.t.Fatalf("%s: got %d to %q, want 303 to %q:\n%s", path, got.Code, got.Header().Get("Location"), to, got.Body)
	}
	return got.Header().Get("Location")
}

// refused attempts an invalid action, and checks the message of the page.
func (w *world) refused(path string, fields url.Values, code int, says string) {
	w.t.Helper()
	if got := act(w.t, w.h, path, fields); got.Code != code || !strings.Contains(got.Body.String(), says) {
		w.t.Errorf("%s: got %d, want %d and %q:\n%s", path, got.Code, code, says, got.Body)
	}
}

// create creates a job of a pipeline.
func (w *world) create(name, prompt string) jobs.Job {
	w.t.Helper()
	j, _, err := w.Create(w.ctx, jobs.Request{Pipeline: name, Prompt: prompt, Dedupe: jobs.DedupeAllow, Labels: []string{hostile}})
	testutil.Ok(w.t, err)
	return j
}

// take takes work of a role.
func (w *world) take(role string) jobs.Work {
	w.t.Helper()
	var got []jobs.Work
	testutil.Eventually(w.t, "work for "+role, func() bool {
		var err error
		if got, _, err = w.Take(w.ctx, role, role+"-1", 1); err != nil {
			w.t.Fatal(err)
		}
		return len(got) == 1
	})
	return got[0]
}

// emit runs the first stage of a job, which adds items.
func (w *world) emit(items ...jobs.NewItem) {
	w.t.Helper()
	testutil.Ok(w.t, w.Complete(w.ctx, w.take("creator"), jobs.Answer{Items: items}))
}

// fail lets an item fail for the last time.
func (w *world) fail(why string) jobs.Work {
	w.t.Helper()
	work := w.take("validator")
	testutil.Ok(w.t, w.Fail(w.ctx, work, errors.New(why), 0, true))
	return work
}

// until waits until a job is in a state.
func (w *world) until(id string, want jobs.Status) {
	w.t.Helper()
	testutil.Eventually(w.t, "the job is "+string(want), func() bool {
		j, err := w.Get(w.ctx, id)
		return err == nil && j.Status == want
	})
}

// follow returns a function that polls a page until it shows a text.
func follow(t *testing.T, h http.Handler, path string) (until func(text string)) {
	t.Helper()
	return func(text string) {
		t.Helper()
		testutil.Eventually(t, path+" shows "+text, func() bool {
			r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, prefix+path, nil)
			r.Header.Set("If-None-Match", "none")
			w := httptest.NewRecorder()
			h.ServeHTTP(w, r)
			return strings.Contains(w.Body.String(), text)
		})
	}
}
