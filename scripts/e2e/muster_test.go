//go:build e2e && unix

package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"muster/internal/redistest"
	"muster/internal/testutil"
	"muster/orchestrator/demo"
	"muster/orchestrator/redisd"
	"muster/tasks"
)

// binary is the path of the muster that all tests use, built once.
var binary string

func TestMain(m *testing.M) {
	if url := os.Getenv(workerURL); url != "" {
		if err := runWorker(url); err != nil {
			fmt.Fprintln(os.Stderr, "worker:", err)
			os.Exit(1)
		}
		return
	}
	dir, err := os.MkdirTemp("", "muster-e2e-")
	if err == nil {
		binary = filepath.Join(dir, "muster")
		build := exec.Command("go", "build", "-o", binary, "muster/cmd/muster")
		build.Stdout, build.Stderr = os.Stderr, os.Stderr
		err = build.Run()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "e2e: build muster:", err)
		_ = os.RemoveAll(dir)
		os.Exit(1)
	}
	redistest.Main(m, func() error { return os.RemoveAll(dir) })
}

// longest is the timeout of a run of muster.
const longest = 2 * time.Minute

// bench is a world with the settings and data of a muster that scrapes it.
type bench struct {
	*demo.World
	dir  string // root directory
	data string // data directory of muster
	out  string // directory of records
	conf string // settings file
}

// concurrency is the concurrency of each worker of a bench.
const concurrency = 4

func setup(t *testing.T) *bench {
	t.Helper()
	dir := t.TempDir()
	w := testutil.Must(demo.Start(t.Context(), demo.Config{Dir: dir}))(t)
	t.Cleanup(func() {
		if err := w.Close(); err != nil {
			t.Errorf("close the world: %v", err)
		}
	})
	b := &bench{
		World: w,
		dir:   dir,
		data:  filepath.Join(dir, "data"),
		out:   filepath.Join(dir, "records"),
		conf:  filepath.Join(dir, "muster.yaml"),
	}
	// JSON is valid YAML and quotes all strings.
	settings, err := json.MarshalIndent(map[string]any{
		"data_dir": b.data,
		"redis":    map[string]any{"mode": "child", "server": redisServer(t)},
		"workers":  map[string]any{"concurrency": concurrency},
		"proxies":  map[string]any{"sources": w.Sources, "judges": []string{w.Judge}, "judge_key": w.JudgeKey, "allow_local": true},
		"sites":    map[string]any{"dir": w.Definitions, "names": []string{"shop", "news"}, "out": b.out},
		"wait":     map[string]any{"poll": "500ms"},
		"shutdown": map[string]any{"drain": "10s"},
	}, "", "  ")
	testutil.Ok(t, err)
	testutil.Ok(t, os.WriteFile(b.conf, settings, 0o600))
	return b
}

// redisServer returns the path of redis-server. It skips the test if there is none.
func redisServer(t *testing.T) string {
	t.Helper()
	name := os.Getenv("MUSTER_TEST_REDIS_SERVER")
	if name == "" {
		name = "redis-server"
	}
	path, err := exec.LookPath(name)
	if err != nil {
		t.Skipf("NOT COVERED: no redis-server to kill (%v)", err)
	}
	return path
}

// run is a running or exited muster.
type run struct {
	cmd            *exec.Cmd
	stdout, stderr testutil.Output
	done           chan struct{}
}

// muster starts the binary. It is killed at the end of the test.
func muster(t *testing.T, env []string, args ...string) *run {
	t.Helper()
	return launch(t, env, exec.Command(binary, args...))
}

// launch starts a command. It is killed at the end of the test.
func launch(t *testing.T, env []string, cmd *exec.Cmd) *run {
	t.Helper()
	r := &run{cmd: cmd, done: make(chan struct{})}
	r.cmd.Env = env
	r.cmd.Stdout, r.cmd.Stderr = &r.stdout, &r.stderr
	r.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	r.cmd.WaitDelay = 5 * time.Second
	testutil.Ok(t, r.cmd.Start())
	go func() {
		defer close(r.done)
		_ = r.cmd.Wait() // the exit status is in ProcessState
	}()
	t.Cleanup(func() {
		select {
		case <-r.done:
		default:
			_ = syscall.Kill(-r.cmd.Process.Pid, syscall.SIGKILL)
			<-r.done
		}
		if t.Failed() {
			t.Logf("%s\nstdout:\n%s\nstderr:\n%s", strings.Join(cmd.Args, " "), tail(r.stdout.String()), tail(r.stderr.String()))
		}
	})
	return r
}

// once starts a round of the bench.
func (b *bench) once(t *testing.T, args ...string) *run {
	t.Helper()
	return muster(t, os.Environ(), b.onceArgs(args...)...)
}

func (b *bench) onceArgs(args ...string) []string {
	return append([]string{"start", "--config", b.conf, "--once", "--json", "--log-level", "debug"}, args...)
}

// wait waits for the exit and checks the exit code.
func (r *run) wait(t *testing.T, code int) {
	t.Helper()
	select {
	case <-r.done:
	case <-time.After(longest):
		t.Fatalf("muster still runs after %s", longest)
	}
	if got := r.cmd.ProcessState.ExitCode(); got != code {
		t.Fatalf("muster exited with %v, want exit code %d", r.cmd.ProcessState, code)
	}
}

// end sends a signal to the process and waits for its exit.
func (r *run) end(sig syscall.Signal) {
	_ = r.cmd.Process.Signal(sig) // it may have exited
	<-r.done
}

func (r *run) ended() bool {
	select {
	case <-r.done:
		return true
	default:
		return false
	}
}

// interrupt sends SIGINT to the process group, like Ctrl-C in a terminal.
func (r *run) interrupt(t *testing.T) {
	t.Helper()
	if err := syscall.Kill(-r.cmd.Process.Pid, syscall.SIGINT); err != nil {
		t.Fatalf("interrupt muster: %v", err)
	}
}

// until waits until fact returns true, and fails if the run exits before.
func (r *run) until(t *testing.T, what string, fact func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), longest)
	defer cancel()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !fact() {
		select {
		case <-tick.C:
		case <-r.done:
			if fact() {
				return
			}
			t.Fatalf("muster exited before %s: %v", what, r.cmd.ProcessState)
		case <-ctx.Done():
			t.Fatalf("timeout waiting for %s: %v", what, ctx.Err())
		}
	}
}

// pids returns the children of a run with a PID file in a directory and a name that starts with prefix.
func pids(t *testing.T, dir, prefix string) []int {
	t.Helper()
	files := testutil.Must(filepath.Glob(filepath.Join(dir, "*.pid")))(t)
	var found []int
	for _, file := range files {
		raw, err := os.ReadFile(file)
		if errors.Is(err, os.ErrNotExist) {
			continue // the process has exited
		}
		testutil.Ok(t, err)
		var pid struct {
			Name    string `json:"name"`
			Process struct {
				PID int `json:"pid"`
			} `json:"process"`
		}
		if err := json.Unmarshal(raw, &pid); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		if strings.HasPrefix(pid.Name, prefix) && pid.Process.PID > 1 {
			found = append(found, pid.Process.PID)
		}
	}
	return found
}

func (b *bench) workers(t *testing.T) []int { return pids(t, filepath.Join(b.data, "run"), "worker-") }
func (b *bench) redis(t *testing.T) []int {
	return pids(t, filepath.Join(b.data, "redis", "run"), "")
}

// client returns a client of the Redis of a run, closed at the end of the test.
func (b *bench) client(t *testing.T) *tasks.Client {
	t.Helper()
	url := testutil.Must(redisd.Discover(t.Context(), b.data))(t)
	b.noPasswordInArguments(t)
	c := testutil.Must(tasks.Connect(t.Context(), url))(t)
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// noPasswordInArguments checks that the password of Redis is not visible to other users.
func (b *bench) noPasswordInArguments(t *testing.T) {
	t.Helper()
	password := testutil.Must(os.ReadFile(filepath.Join(b.data, "redis", "password")))(t)
	for _, pid := range append(b.workers(t), b.redis(t)...) {
		args, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		if err == nil && bytes.Contains(args, bytes.TrimSpace(password)) { // without an error, the process runs on Linux
			t.Errorf("the password of Redis is in the arguments of process %d", pid)
		}
	}
}

// number reads a number from the environment.
func number(t *testing.T, name string, otherwise int) int {
	t.Helper()
	text := os.Getenv(name)
	if text == "" {
		return otherwise
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 {
		t.Fatalf("%s=%s: must be a positive number", name, text)
	}
	return n
}

// kill9 kills a process of a run with SIGKILL.
func kill9(t *testing.T, pid int) {
	t.Helper()
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatalf("kill %d: %v", pid, err)
	}
}

// pagesAsked returns the number of requests to both sites.
func (b *bench) pagesAsked() int {
	return b.Shop.Traffic().Requests() + b.News.Traffic().Requests()
}

// proxiesAsked returns the number of requests to the proxies.
func (b *bench) proxiesAsked() int64 {
	var n int64
	for _, p := range b.Proxies {
		n += p.Requests()
	}
	return n
}

// summary is the JSON output of a round or a demo.
type summary struct {
	Proxies struct{ Candidates, Alive, Usable int }
	Sites   []struct {
		Site    string
		JobID   string `json:"job_id"`
		Status  string
		Pages   int
		Records int
		Errors  int
		Files   []string
	}
	Seconds float64
	Redis   string
}

func (r *run) summary(t *testing.T) summary {
	t.Helper()
	var s summary
	if err := json.Unmarshal([]byte(r.stdout.String()), &s); err != nil {
		t.Fatalf("stdout is not a summary: %v", err)
	}
	return s
}

// wantAll checks the summary of a complete round and the records in its files.
func wantAll(t *testing.T, w *demo.World, s summary) {
	t.Helper()
	if len(s.Sites) != len(w.Sites()) {
		t.Fatalf("the summary has %d sites, want %d", len(s.Sites), len(w.Sites()))
	}
	if s.Proxies.Usable < 10 {
		t.Errorf("%d usable proxies, want at least 10", s.Proxies.Usable)
	}
	for _, site := range w.Sites() {
		for _, got := range s.Sites {
			if got.Site != site.Name {
				continue
			}
			if want := len(site.Truth()); got.Records != want {
				t.Errorf("%s: got %d records in the summary, want %d", site.Name, got.Records, want)
			}
			if got.Status != "COMPLETE" {
				t.Errorf("%s: status %s, want COMPLETE", site.Name, got.Status)
			}
			if err := site.CheckFiles(got.Files...); err != nil {
				t.Error(err)
			}
		}
	}
}

// wantQuiet checks that no process of a bench remains: neither of the binary nor of Redis.
func (b *bench) wantQuiet(t *testing.T) {
	t.Helper()
	if runtime.GOOS != "linux" {
		return // no /proc on this system
	}
	var left []string
	entries := testutil.Must(filepath.Glob("/proc/[0-9]*/cmdline"))(t)
	for _, file := range entries {
		raw, err := os.ReadFile(file)
		if err != nil {
			continue // the process has exited
		}
		environ, _ := os.ReadFile(filepath.Join(filepath.Dir(file), "environ")) // not readable for processes of other users
		cwd, _ := os.Readlink(filepath.Join(filepath.Dir(file), "cwd"))
		if bytes.Contains(raw, []byte(b.dir)) || bytes.Contains(environ, []byte(b.dir)) || strings.HasPrefix(cwd, b.dir) {
			left = append(left, string(bytes.ReplaceAll(raw, []byte{0}, []byte{' '})))
		}
	}
	if len(left) > 0 {
		t.Errorf("still running after the exit:\n%s", strings.Join(left, "\n"))
	}
}

// tail returns the end of a long output.
func tail(s string) string {
	const most = 6000
	if len(s) > most {
		return "…" + s[len(s)-most:]
	}
	return s
}
