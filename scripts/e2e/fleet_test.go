//go:build e2e && unix

package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"muster/internal/testutil"
)

// fleet is a muster with its API, for agents.
type fleet struct {
	dir  string // root directory
	conf string // settings file
	url  string // URL of the API
}

// newFleet writes the settings of a muster with a separate Redis. Settings in more replace complete sections.
func newFleet(t *testing.T, more map[string]any) *fleet {
	t.Helper()
	return newFleetIn(t, t.TempDir(), more)
}

// newFleetIn is newFleet in a directory.
func newFleetIn(t *testing.T, dir string, more map[string]any) *fleet {
	t.Helper()
	f := &fleet{dir: dir, conf: filepath.Join(dir, "muster.yaml")}
	port := testutil.FreePort(t)
	f.url = fmt.Sprintf("http://127.0.0.1:%d", port)
	settings := map[string]any{
		"data_dir": filepath.Join(dir, "data"),
		"redis":    map[string]any{"mode": "child", "server": redisServer(t)},
		"api":      map[string]any{"listen": fmt.Sprintf("127.0.0.1:%d", port)},
		"jobs":     map[string]any{"dedupe": "allow", "lease": "5s"},
	}
	maps.Copy(settings, more)
	text := testutil.Must(json.MarshalIndent(settings, "", "  "))(t) // JSON is YAML
	testutil.Ok(t, os.WriteFile(f.conf, text, 0o600))
	return f
}

// start starts muster and waits for its API.
func (f *fleet) start(t *testing.T) *run {
	t.Helper()
	r := muster(t, os.Environ(), "start", "--config", f.conf)
	r.until(t, "its API", func() bool { return f.get("/ready", nil) == nil })
	return r
}

// get decodes a JSON response of the API into v, unless it is nil.
func (f *fleet) get(path string, v any) error {
	_, err := f.call(http.MethodGet, path, nil, v)
	return err
}

// call calls the API with a JSON body, or with bytes that a header describes. It also returns an error for an unsuccessful status.
func (f *fleet) call(method, path string, body, v any, header ...string) (status int, err error) {
	data, encoded := body.([]byte)
	if body != nil && !encoded {
		if data, err = json.Marshal(body); err != nil {
			return 0, err
		}
	}
	req, err := http.NewRequest(method, f.url+path, bytes.NewReader(data))
	if err != nil {
		return 0, err
	}
	req.Header.Set("Content-Type", "application/json")
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	client := http.Client{Timeout: time.Minute}
	resp, err := client.Do(req)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return resp.StatusCode, err
	}
	if resp.StatusCode >= 300 {
		return resp.StatusCode, fmt.Errorf("%s %s: %s: %s", method, path, resp.Status, text)
	}
	if v != nil {
		err = json.Unmarshal(text, v)
	}
	return resp.StatusCode, err
}

// do calls the API and fails the test on an error.
func (f *fleet) do(t *testing.T, method, path string, body, v any) {
	t.Helper()
	testutil.Must(f.call(method, path, body, v))(t)
}

// muster runs a command with the settings and returns its output.
func (f *fleet) muster(t *testing.T, args ...string) string {
	t.Helper()
	r := muster(t, os.Environ(), append(args, "--config", f.conf)...)
	r.wait(t, 0)
	return r.stdout.String()
}

// agentJob contains the required fields of a job.
type agentJob struct {
	ID      string
	Status  string
	Waiting string
	Error   string `json:"error_message"`
	Items   struct{ Total, Pending, Integrated, Rejected, Failed int }
	Percent float64 `json:"progress_percent"`
}

// agentItem contains the required fields of an item.
type agentItem struct {
	Key, Text, Status, Agent string
	ExternalID               string `json:"external_id"`
	Labels                   map[string]bool
}

// items returns all items of a job.
func (f *fleet) items(t *testing.T, id string) []agentItem {
	t.Helper()
	var all []agentItem
	for cursor := ""; ; {
		var page struct {
			Data []agentItem
			Next string
		}
		f.do(t, http.MethodGet, "/v1/jobs/"+id+"/items?limit=1000&cursor="+cursor, nil, &page)
		all = append(all, page.Data...)
		if cursor = page.Next; cursor == "" {
			return all
		}
	}
}

// interpreter returns the path of a program that runs an agent of examples/agents.
func interpreter(t *testing.T, name string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		t.Skipf("NOT COVERED: agents in %s: not installed (%v)", name, err)
	}
	return path
}

// exampleAgent returns the path of a file in examples/agents.
func exampleAgent(t *testing.T, name string) string {
	t.Helper()
	path := testutil.Must(filepath.Abs(filepath.Join("..", "..", "examples", "agents", name)))(t)
	return path
}

// agent starts an agent of examples/agents and stops it at the end of the test.
func (f *fleet) agent(t *testing.T, interpreterName, file string, env ...string) *run {
	t.Helper()
	return launch(t, append(os.Environ(), append(env, "MUSTER_API="+f.url, "NO_PROXY=*", "PYTHONDONTWRITEBYTECODE=1")...),
		exec.Command(interpreter(t, interpreterName), exampleAgent(t, file)))
}

// sentences returns a document of n sentences, of which every third contains no requirement.
func sentences(name string, n int) string {
	var b bytes.Buffer
	for i := range n {
		if i%3 == 2 {
			b.WriteString("Sentence " + strconv.Itoa(i) + " of " + name + " is only a remark.\n\n")
		} else {
			b.WriteString("The part " + strconv.Itoa(i) + " of " + name + " must be there.\n\n")
		}
	}
	return b.String()
}

// TestHungRedisIsRestarted stops the redis-server of muster with SIGSTOP: API calls return 503 within 5 s, and muster restarts the
// server without loss of data.
func TestHungRedisIsRestarted(t *testing.T) {
	t.Parallel()
	f := newFleet(t, nil)
	main := f.start(t)
	var j agentJob
	f.do(t, http.MethodPost, "/jobs", map[string]any{"prompt": "p"}, &j)
	hung := pids(t, filepath.Join(f.dir, "data", "redis", "run"), "")
	if len(hung) != 1 {
		t.Fatalf("got %v, want one redis-server", hung)
	}
	testutil.Ok(t, syscall.Kill(hung[0], syscall.SIGSTOP))
	var calls sync.WaitGroup
	for _, c := range []struct{ method, path string }{
		{http.MethodGet, "/jobs"}, {http.MethodGet, "/jobs/" + j.ID}, {http.MethodPost, "/jobs"}, {http.MethodPost, "/jobs/" + j.ID + "/cancel"}, {http.MethodGet, "/v1/agents"},
		{http.MethodGet, "/jobs/" + j.ID + "/report"}, {http.MethodGet, "/stats/daily"}, {http.MethodGet, "/ready"},
	} {
		calls.Go(func() {
			began := time.Now()
			status, err := f.call(c.method, c.path, map[string]any{"prompt": "p"}, nil)
			if took := time.Since(began); status != http.StatusServiceUnavailable || took > 5*time.Second {
				t.Errorf("%s %s: got %d, %v after %v, want 503 within 5 s", c.method, c.path, status, err, took)
			}
		})
	}
	calls.Wait()
	main.until(t, "the restart", func() bool { return f.get("/jobs/"+j.ID, &j) == nil })
	if text := main.stderr.String(); !strings.Contains(text, "redis-server is hung, restarting it") {
		t.Errorf("the log has no restart:\n%s", text)
	}
}
