package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"muster/internal/redistest"
	"muster/internal/testutil"
	"muster/tasks"
)

// command runs the real command as a process, on a Redis and a data folder of
// the test.
type command struct {
	t       *testing.T
	dir     string
	program string
	redis   string
	environ []string
}

func newCommand(t *testing.T) *command {
	dir := t.TempDir()
	self := testutil.Must(os.Executable())(t)
	// The test binary runs the command when its name is muster, and so do its worker
	// processes: with a symbolic link they would run the tests, without end.
	program := filepath.Join(dir, "muster")
	if err := os.Link(self, program); err != nil { // another file system
		b, err := os.ReadFile(self)
		if err == nil {
			err = os.WriteFile(program, b, 0o700)
		}
		testutil.Ok(t, err)
	}
	redis := redistest.URL(t)
	return &command{t, dir, program, redis, append(os.Environ(),
		"MUSTER_DATA_DIR="+filepath.Join(dir, "data"), "MUSTER_REDIS__URL="+redis, "MUSTER_NETWORK__ALLOW=127.0.0.1")}
}

func (c *command) write(name, content string) string {
	c.t.Helper()
	name = filepath.Join(c.dir, name)
	testutil.Ok(c.t, os.WriteFile(name, []byte(content), 0o644))
	return name
}

// start starts the command, and returns it and its output.
func (c *command) start(args ...string) (*exec.Cmd, *testutil.Output) {
	c.t.Helper()
	out := &testutil.Output{}
	cmd := exec.Command(c.program, args...)
	cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr = c.dir, c.environ, out, out
	testutil.Ok(c.t, cmd.Start())
	c.t.Cleanup(func() { _ = cmd.Process.Kill() })
	return cmd, out
}

// run runs the command, which must succeed, and returns its output.
func (c *command) run(args ...string) string {
	c.t.Helper()
	printed := &testutil.Output{}
	cmd := exec.Command(c.program, args...)
	cmd.Dir, cmd.Env, cmd.Stderr = c.dir, c.environ, printed
	answer, err := cmd.Output()
	if err != nil {
		c.t.Fatalf("muster %s: %v\n%s", strings.Join(args, " "), err, printed)
	}
	return string(answer)
}

// crowd is a server whose responses end when the test releases them.
type crowd struct {
	*httptest.Server
	release  chan struct{}
	mu       sync.Mutex // guards now and all
	now, all int
}

func newCrowd(t *testing.T) *crowd {
	c := &crowd{release: make(chan struct{})}
	c.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/robots.txt" {
			http.NotFound(w, r)
			return
		}
		c.count(1)
		defer c.count(-1)
		select {
		case <-c.release:
			fmt.Fprint(w, "content of ", r.URL.Path)
		case <-r.Context().Done():
		}
	}))
	t.Cleanup(c.Close)
	return c
}

func (c *crowd) count(n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now += n
	c.all += max(n, 0)
}

// is reports whether n pages are being fetched now.
func (c *crowd) is(n int) func() bool {
	return func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		return c.now == n
	}
}

// artifacts returns n lines for an import, with pages of a server.
func artifacts(url string, n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, `{"id":"a%03d","url":"%s/%d"}`+"\n", i, url, i)
	}
	return b.String()
}

// Limits are loaded again while a queue runs; an invalid file
// changes nothing.
func TestQueueRunReadsLimitsAgain(t *testing.T) {
	t.Parallel()
	c, pages := newCommand(t), newCrowd(t)
	settings := func(text string) string { return c.write("muster.yaml", text) }
	settings("queue: {max_per_host: 1}\n")
	c.run("queue", "import", c.write("a.jsonl", artifacts(pages.URL, 9)))
	cmd, out := c.start("queue", "run", "--workers", "6", "--metrics-listen", "127.0.0.1:0")
	testutil.Eventually(t, "one page to be fetched", pages.is(1))
	metric := func(line string) {
		t.Helper()
		_, rest, ok := strings.Cut(out.String(), "metrics are at ")
		url, _, _ := strings.Cut(rest, "\n")
		res, err := http.Get(url)
		if !ok || err != nil {
			t.Fatalf("no metrics: %v in %s", err, out)
		}
		defer func() { _ = res.Body.Close() }()
		if text, err := io.ReadAll(res.Body); err != nil || !strings.Contains(string(text), line+"\n") {
			t.Errorf("no %s in %s, %v", line, text, err)
		}
	}
	metric(`muster_queue_items{queue="default",state="in_progress"} 1`)
	metric(`muster_limit_slots_used{limiter="host"} 1`)

	hup := func(want string) {
		t.Helper()
		testutil.Ok(t, cmd.Process.Signal(syscall.SIGHUP))
		testutil.Eventually(t, "the output "+want, func() bool { return strings.Contains(out.String(), want) })
	}
	settings("queue: {max_per_host: 3}\n")
	hup("queue.max_per_host: 1 → 3")
	testutil.Eventually(t, "three pages to be fetched", pages.is(3))

	settings("queue:\n  max_per_host: lots\n")
	hup("muster.yaml:2:17: queue.max_per_host")
	settings("queue: {max_per_host: 2, max_per_hosts: 7}\n")
	hup("queue: unknown key")
	for range 2 { // each that ends is followed by one
		pages.release <- struct{}{}
		testutil.Eventually(t, "three pages to be fetched", pages.is(3))
	}

	settings("queue: {max_per_host: 2}\n")
	hup("queue.max_per_host: 3 → 2")
	pages.release <- struct{}{}
	testutil.Eventually(t, "the rest of the three to be fetched", pages.is(2))
	pages.release <- struct{}{}
	testutil.Eventually(t, "two pages to be fetched", pages.is(2))

	close(pages.release)
	testutil.Eventually(t, "all to be done", func() bool { return strings.Contains(c.run("queue", "stats", "--json"), `"done": 9`) })
	testutil.Ok(t, cmd.Process.Signal(os.Interrupt))
	_ = cmd.Wait()
	if code := cmd.ProcessState.ExitCode(); code != exitInterrupted {
		t.Errorf("an interrupted run ends with %d\n%s", code, out)
	}
	if pages.all != 9 {
		t.Errorf("9 pages were fetched %d times", pages.all)
	}
}

// No command changes a queue that a newer version wrote.
func TestNewerQueueIsRefused(t *testing.T) {
	t.Parallel()
	c := newCommand(t)
	c.run("queue", "enqueue", "a")
	client := testutil.Must(tasks.Connect(t.Context(), c.redis))(t)
	defer func() { _ = client.Close() }()
	testutil.Ok(t, client.Redis().HSet(t.Context(), "muster:wq:{default}:meta", "v", 99).Err())
	for _, args := range [][]string{
		{"enqueue", "b"}, {"import", c.write("b.jsonl", `{"id":"b"}`)}, {"run", "--drain"}, {"stats"}, {"retry-failed"}, {"pause"}, {"resume"},
	} {
		cmd, out := c.start(append([]string{"queue"}, args...)...)
		if err := cmd.Wait(); err == nil || !strings.Contains(out.String(), "written by a newer version") {
			t.Errorf("queue %s: %v, %s", args[0], err, out)
		}
	}
}

// An interrupted drain reports it, and immediately returns the items that it has
// not begun; a second interrupt returns the rest. One that is killed leaves its
// items to the next run, which does not wait for their leases to end.
func TestDrainIsInterruptedAndKilled(t *testing.T) {
	t.Parallel()
	c, pages := newCommand(t), newCrowd(t)
	c.run("queue", "import", c.write("a.jsonl", artifacts(pages.URL, 9)))
	stats := func() (s struct{ Queued, In_progress, Done int }) {
		testutil.Ok(t, json.Unmarshal([]byte(c.run("queue", "stats", "--json")), &s))
		return s
	}
	cmd, out := c.start("queue", "run", "--drain", "--workers", "2")
	testutil.Eventually(t, "two pages to be fetched", pages.is(2))
	interrupt := func() {
		testutil.Ok(t, cmd.Process.Signal(os.Interrupt))
	}
	interrupt()
	testutil.Eventually(t, "the items that have not begun to be returned", func() bool { return stats().Queued == 7 })
	interrupt()
	_ = cmd.Wait()
	if code := cmd.ProcessState.ExitCode(); code != exitInterrupted || strings.Contains(out.String(), "not empty") {
		t.Errorf("an interrupted drain: got exit code %d, want %d\n%s", code, exitInterrupted, out)
	}
	if s := stats(); s.Queued != 9 || s.In_progress != 0 {
		t.Errorf("after an interrupt: got %+v, want 9 queued and none in progress", s)
	}

	// A drain is not a server: SIGTERM leaves items, so it does not succeed.
	cmd, out = c.start("queue", "run", "--drain", "--workers", "2")
	testutil.Eventually(t, "two pages to be fetched before SIGTERM", pages.is(2))
	for range 2 {
		testutil.Ok(t, cmd.Process.Signal(syscall.SIGTERM))
		testutil.Eventually(t, "the items that have not begun to be returned", func() bool { return stats().Queued >= 7 })
	}
	_ = cmd.Wait()
	if code := cmd.ProcessState.ExitCode(); code != exitInterrupted {
		t.Errorf("a drain after SIGTERM: got exit code %d, want %d\n%s", code, exitInterrupted, out)
	}

	cmd, _ = c.start("queue", "run", "--drain", "--workers", "2")
	testutil.Eventually(t, "two pages to be fetched again", pages.is(2))
	testutil.Ok(t, cmd.Process.Kill())
	_ = cmd.Wait()
	if s := stats(); s.In_progress == 0 {
		t.Errorf("after a kill: got %+v, want items in progress", s)
	}
	close(pages.release)
	c.run("queue", "run", "--drain") // the leases last ten minutes
	if s := stats(); s.Done != 9 {
		t.Errorf("after the last run: got %+v, want 9 done", s)
	}
}
