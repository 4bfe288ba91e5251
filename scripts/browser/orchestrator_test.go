package browser

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"muster/internal/testutil"
)

// process is a running muster.
type process struct {
	*testing.T
	cmd  *exec.Cmd
	done chan struct{}

	mu  sync.Mutex // guards out
	out bytes.Buffer
}

func (p *process) Write(text []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.out.Write(text)
}

func (p *process) printed() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.out.String()
}

// run starts the binary in a separate directory. It is stopped at the end of the test.
func run(t *testing.T, args ...string) *process {
	t.Helper()
	if chromium == "" {
		t.Skip("NOT COVERED: Chromium not found; set MUSTER_TEST_BROWSER")
	}
	file := testutil.Must(binary())(t)
	p := &process{T: t, cmd: exec.Command(file, args...), done: make(chan struct{})}
	p.cmd.Dir = t.TempDir()
	p.cmd.Env = append(os.Environ(), "MUSTER_API__LISTEN=127.0.0.1:0")
	if server := os.Getenv("MUSTER_TEST_REDIS_SERVER"); server != "" && server != "off" {
		p.cmd.Env = append(p.cmd.Env, "PATH="+filepath.Dir(server)+":"+os.Getenv("PATH"))
	}
	p.cmd.Stdout, p.cmd.Stderr = p, p
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	p.cmd.WaitDelay = 5 * time.Second
	testutil.Ok(t, p.cmd.Start())
	go func() {
		defer close(p.done)
		_ = p.cmd.Wait() // the exit status is in ProcessState
	}()
	t.Cleanup(func() {
		p.end(syscall.SIGKILL)
		if t.Failed() {
			t.Logf("muster %s:\n%s", strings.Join(args, " "), p.printed())
		}
	})
	return p
}

// end sends a signal to the process group and waits for its exit.
func (p *process) end(s syscall.Signal) {
	select {
	case <-p.done:
	default:
		_ = syscall.Kill(-p.cmd.Process.Pid, s)
		<-p.done
	}
}

// until waits for output that matches, and returns the first group.
func (p *process) until(re *regexp.Regexp) string {
	p.Helper()
	var m []string
	if !testutil.Becomes(func() bool {
		m = re.FindStringSubmatch(p.printed())
		select {
		case <-p.done:
			return true
		default:
			return m != nil
		}
	}) || m == nil {
		p.Fatalf("not printed: %v", re)
	}
	return m[1]
}

var address = regexp.MustCompile(`(http://127\.0\.0\.1:\d+)/ui/`)

// keys creates keys of a role in a data directory.
func (p *process) keys(data, role string, n int) []string {
	p.Helper()
	var all []string
	for i := range n {
		create := exec.Command(p.cmd.Path, "keys", "create", "--name", fmt.Sprint(role, "-", i), "--role", role, "--data-dir", data)
		create.Dir, create.Env = p.cmd.Dir, p.cmd.Env
		out, err := create.Output()
		if err != nil {
			p.Fatalf("create a key: %v", err)
		}
		all = append(all, strings.TrimSpace(string(out)))
	}
	return all
}

// TestDemo crawls the pages of an orchestrator after a round, performs all actions, stops Redis and sends SIGINT.
func TestDemo(t *testing.T) {
	if testing.Short() {
		t.Skip("long: it crawls all pages")
	}
	t.Parallel()
	p := run(t, "demo", "--keep", "--dir", "world")
	base := p.until(address)
	p.until(regexp.MustCompile(`(Press Ctrl-C to stop everything)`))
	admins, viewer := p.keys("world/data", "admin", 4), p.keys("world/data", "viewer", 1)[0]
	workOnJob(t, base, admins[0])
	b := open(t, base)
	c := walk(b, "demo", "/ui", admins[0])
	t.Logf("pages: %s", strings.Join(c.paths(), " "))
	refused(t, newCrawl(b, "/ui", viewer), c.questions)
	for _, key := range admins { // a key that no action revokes
		id := strings.Split(key, "_")[1]
		if !slices.ContainsFunc(c.questions, func(path string) bool { return strings.Contains(path, id) }) {
			c.as(key)
		}
	}
	c.perform()

	b.expectFailures()
	b.visit("/ui/")
	b.status("Live")
	redis := pids(t, filepath.Join(p.cmd.Dir, "world", "data", "redis", "run"))
	if len(redis) != 1 {
		t.Fatalf("got %v, want one redis-server", redis)
	}
	testutil.Ok(t, syscall.Kill(redis[0], syscall.SIGSTOP))
	t.Cleanup(func() { _ = syscall.Kill(redis[0], syscall.SIGCONT) })
	b.status("Not up to date")
	b.inspect("demo outage")
	if err := syscall.Kill(redis[0], syscall.SIGCONT); err != nil && !errors.Is(err, syscall.ESRCH) { // restarted after a long time
		t.Fatal(err)
	}
	b.status("Live")

	p.end(syscall.SIGINT)
	if got := p.cmd.ProcessState.ExitCode(); got != 130 {
		t.Errorf("after Ctrl-C: got exit code %d, want 130", got)
	}
}

// assigned is an assignment of an agent.
type assigned struct {
	ID    string
	Fence int64
}

// workOnJob acts as two agents: one adds items to a job; the other accepts one item, fails one and keeps one.
func workOnJob(t *testing.T, base, key string) {
	t.Helper()
	call := func(path string, body map[string]any, v any) {
		t.Helper()
		raw := testutil.Must(json.Marshal(body))(t)
		req := testutil.Must(http.NewRequestWithContext(t.Context(), http.MethodPost, base+path, bytes.NewReader(raw)))(t)
		req.Header.Set("Content-Type", "application/json")
		req.SetBasicAuth("x", key)
		res := testutil.Must(http.DefaultClient.Do(req))(t)
		defer res.Body.Close()
		text, err := io.ReadAll(res.Body)
		if err != nil || res.StatusCode >= http.StatusBadRequest {
			t.Fatalf("%s: got %s %s, %v", path, res.Status, text, err)
		}
		if v != nil {
			decode(t, string(text), v)
		}
	}
	lease := func(role string, n int) (agent string, all []assigned) {
		t.Helper()
		var me struct{ ID string }
		call("/v1/agents", map[string]any{"name": role + "-1", "roles": []string{role}, "capacity": n}, &me)
		testutil.Eventually(t, "the agent has its assignments", func() bool {
			var got struct{ Assignments []assigned }
			call("/v1/agents/"+me.ID+"/lease", map[string]any{"max": n, "wait_seconds": 1}, &got)
			all = append(all, got.Assignments...)
			return len(all) >= n
		})
		return me.ID, all
	}
	call("/jobs", map[string]any{"prompt": hostile}, nil)
	agent, work := lease("creator", 1)
	var items []map[string]any
	for i := range 3 {
		items = append(items, map[string]any{"key": fmt.Sprint("req-", i), "text": hostile, "source_location": "page 1"})
	}
	call("/v1/assignments/"+work[0].ID+"/complete", map[string]any{"agent": agent, "fence": work[0].Fence, "items": items}, nil)
	agent, work = lease("validator", 3)
	call("/v1/assignments/"+work[0].ID+"/complete", map[string]any{"agent": agent, "fence": work[0].Fence, "verdict": "accept"}, nil)
	call("/v1/assignments/"+work[1].ID+"/fail", map[string]any{"agent": agent, "fence": work[1].Fence, "error": hostile, "permanent": true}, nil)
}

// refused checks that a caller without permission can neither see nor submit confirmation pages.
func refused(t *testing.T, c *crawl, questions []string) {
	t.Helper()
	for _, path := range questions {
		for _, method := range []string{http.MethodGet, http.MethodPost} {
			if code, _, _ := c.ask(method, path, nil); code != http.StatusForbidden {
				t.Errorf("%s %s without permission: got %d, want 403", method, path, code)
			}
		}
	}
}

// pids returns the processes with a PID file in a directory.
func pids(t *testing.T, dir string) []int {
	t.Helper()
	files := testutil.Must(filepath.Glob(filepath.Join(dir, "*.pid")))(t)
	var all []int
	for _, file := range files {
		raw := testutil.Must(os.ReadFile(file))(t)
		var pid struct {
			Process struct{ PID int }
		}
		decode(t, string(raw), &pid)
		all = append(all, pid.Process.PID)
	}
	return all
}

// TestEmptyOrchestrator crawls the pages of an orchestrator without data, as an admin and as a viewer, who must not find or submit
// any action.
func TestEmptyOrchestrator(t *testing.T) {
	if testing.Short() {
		t.Skip("long: it crawls all pages")
	}
	t.Parallel()
	p := run(t, "start", "--data-dir", "data", "--log-level", "info")
	base := p.until(address)
	admin, viewer := p.keys("data", "admin", 1)[0], p.keys("data", "viewer", 1)[0]
	all := walk(open(t, base), "nothing", "/ui", admin)

	b := open(t, base)
	seen := newCrawl(b, "/ui", viewer)
	seen.quick = true
	seen.walk("viewer")
	if len(seen.questions) > 0 {
		t.Errorf("a viewer finds links to %v, want no links to forbidden actions", seen.questions)
	}
	refused(t, seen, all.questions)
	b.expectFailures()
	if got := b.visit("/ui/tasks/queues/default/pause"); got != http.StatusForbidden {
		t.Errorf("a viewer pauses a queue: got %d, want 403", got)
	}
	b.inspect("viewer forbidden")
}
