//go:build unix

package supervise

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"muster/internal/testutil"
)

// childEnv makes this test binary a child: "polite" exits on SIGTERM, "stubborn" ignores it, "failing" exits with 3, "parent"
// starts a stubborn child and blocks, "supervisor" supervises a stubborn child.
const childEnv = "MUSTER_SUPERVISE_TEST_CHILD"

func TestMain(m *testing.M) {
	if role := os.Getenv(childEnv); role != "" {
		play(role, os.Args[len(os.Args)-1])
	}
	goleak.VerifyTestMain(m)
}

// play writes the PID to the file when the role is ready.
func play(role, file string) {
	term := make(chan os.Signal, 1)
	ready := func(pid int) {
		if err := os.WriteFile(file+".tmp", []byte(strconv.Itoa(pid)), 0o600); err != nil {
			panic(err)
		}
		if err := os.Rename(file+".tmp", file); err != nil {
			panic(err)
		}
	}
	fmt.Println("this is", role)
	switch role {
	case "polite":
		signal.Notify(term, syscall.SIGTERM)
		ready(os.Getpid())
		<-term
		os.Exit(0)
	case "stubborn":
		signal.Ignore(syscall.SIGTERM)
		ready(os.Getpid())
	case "failing":
		ready(os.Getpid())
		os.Exit(3)
	case "parent":
		signal.Notify(term, syscall.SIGTERM)
		cmd := exec.Command(os.Args[0], file)
		cmd.Env = append(os.Environ(), childEnv+"=stubborn")
		if err := cmd.Start(); err != nil {
			panic(err)
		}
		<-term
		os.Exit(0)
	case "supervisor":
		_, err := Start(Config{
			Name: "kid", Args: []string{file}, Env: []string{childEnv + "=stubborn"},
			PIDDir: filepath.Join(filepath.Dir(file), "run"),
		})
		if err != nil {
			panic(err)
		}
	}
	time.AfterFunc(time.Minute, func() { os.Exit(1) }) // children of a failed test exit automatically
	select {}
}

// readyPID waits until a child has written its PID, and removes the file.
func readyPID(t *testing.T, file string) int {
	t.Helper()
	var pid int
	testutil.Eventually(t, "child is ready", func() bool {
		b, err := os.ReadFile(file)
		if err != nil {
			return false
		}
		pid, err = strconv.Atoi(string(b))
		return err == nil
	})
	testutil.Ok(t, os.Remove(file))
	return pid
}

func identify(t *testing.T, pid int) Identity {
	t.Helper()
	id := testutil.Must(Identify(pid))(t)
	return id
}

// child returns a configuration that runs role, and its ready file.
func child(t *testing.T, role string) (Config, string) {
	t.Helper()
	dir := t.TempDir()
	file := filepath.Join(dir, "ready")
	return Config{
		Name: "kid", Args: []string{file}, Env: []string{childEnv + "=" + role},
		LogFile: filepath.Join(dir, "logs", "kid.log"), PIDDir: filepath.Join(dir, "run"),
		MinDelay: time.Millisecond, MaxDelay: 20 * time.Millisecond,
	}, file
}

func start(t *testing.T, cfg Config) *Process {
	t.Helper()
	p := testutil.Must(Start(cfg))(t)
	t.Cleanup(func() { _ = p.Kill() })
	return p
}

func TestFiveCyclesLeaveNoProcess(t *testing.T) {
	t.Parallel()
	cfg, file := child(t, "polite")
	for range 5 {
		p := start(t, cfg)
		id := identify(t, readyPID(t, file))
		if got := p.Status().PID; got != id.PID {
			t.Fatalf("got Status PID %d, want %d", got, id.PID)
		}
		testutil.Ok(t, p.Stop(t.Context()))
		if id.Alive() {
			t.Fatal("child is alive after Stop")
		}
		if err := p.Status().LastExit; err != nil {
			t.Fatalf("child exited with %v after SIGTERM, want no error", err)
		}
		if left, _ := filepath.Glob(filepath.Join(cfg.PIDDir, "*")); len(left) != 0 {
			t.Fatalf("left behind: %v", left)
		}
		select {
		case <-p.Done():
		default:
			t.Fatal("Done is open after Stop")
		}
	}
	if info, err := os.Stat(cfg.LogFile); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("log file: %v, %v; want permissions 0600", info, err)
	}
	if got := strings.Count(LogTail(cfg.LogFile, 1<<20), "this is polite\n"); got != 5 {
		t.Fatalf("log has %d lines of the child, want 5", got)
	}
}

func TestExitedChildIsRestarted(t *testing.T) {
	t.Parallel()
	cfg, file := child(t, "polite")
	exits := make(chan Exit, 10)
	cfg.OnExit = func(e Exit) { exits <- e }
	p := start(t, cfg)

	first := identify(t, readyPID(t, file))
	testutil.Ok(t, syscall.Kill(first.PID, syscall.SIGKILL))
	exit := <-exits
	if exit.PID != first.PID || exit.Err == nil || exit.Stopping || exit.Name != "kid" {
		t.Fatalf("OnExit got %+v, want the exit of %d", exit, first.PID)
	}
	second := identify(t, readyPID(t, file))
	if second.PID == first.PID || first.Alive() {
		t.Fatalf("first %v, second %v", first, second)
	}
	if s := p.Status(); s.Restarts != 1 || s.PID != second.PID {
		t.Fatalf("status %+v, want one restart and pid %d", s, second.PID)
	}

	testutil.Ok(t, p.Stop(t.Context()))
	if exit := <-exits; !exit.Stopping || exit.Err != nil || exit.PID != second.PID {
		t.Fatalf("OnExit got %+v, want the stop of %d", exit, second.PID)
	}
}

func TestDelayDoublesAndStopCancelsIt(t *testing.T) {
	t.Parallel()
	cfg, _ := child(t, "failing")
	cfg.MinDelay, cfg.MaxDelay = 2*time.Millisecond, time.Hour
	died := make(chan time.Time, 100)
	cfg.OnExit = func(Exit) { died <- time.Now() }
	p := start(t, cfg)

	var times []time.Time
	for range 6 {
		times = append(times, <-died)
	}
	// The fifth delay is 2 ms doubled four times.
	if got := times[5].Sub(times[4]); got < 32*time.Millisecond {
		t.Errorf("fifth restart came after %v, want at least 32 ms", got)
	}
	testutil.Eventually(t, "a delay longer than the test", func() bool {
		select {
		case <-died:
		default:
		}
		return p.Status().Restarts >= 8 && p.Status().PID == 0
	})
	testutil.Ok(t, p.Stop(t.Context()))
}

func TestStopKillsAStubbornGroup(t *testing.T) {
	t.Parallel()
	cfg, file := child(t, "parent")
	cfg.Grace = 50 * time.Millisecond
	p := start(t, cfg)
	grandchild := identify(t, readyPID(t, file))

	testutil.Ok(t, p.Stop(t.Context()))
	testutil.Eventually(t, "grandchild is gone", func() bool { return !grandchild.Alive() })
}

func TestExitKillsTheGroup(t *testing.T) {
	t.Parallel()
	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGKILL} {
		cfg, file := child(t, "parent")
		p := start(t, cfg)
		orphan := identify(t, readyPID(t, file))
		testutil.Ok(t, syscall.Kill(p.Status().PID, sig))
		testutil.Eventually(t, "orphan is gone", func() bool { return !orphan.Alive() })
		testutil.Ok(t, p.Kill())
	}
}

func TestStopObeysItsContext(t *testing.T) {
	t.Parallel()
	cfg, file := child(t, "stubborn")
	cfg.Grace = time.Hour
	p := start(t, cfg)
	id := identify(t, readyPID(t, file))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	testutil.Ok(t, p.Stop(ctx))
	if id.Alive() {
		t.Fatal("child is alive after Stop")
	}
	if err := p.Stop(t.Context()); err != nil {
		t.Fatalf("second Stop: %v", err)
	}
}

func TestStartErrors(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	blocked := filepath.Join(dir, "file")
	testutil.Ok(t, os.WriteFile(blocked, nil, 0o600))
	for name, c := range map[string]struct {
		cfg  Config
		want string
	}{
		"no such program": {Config{Name: "x", Path: filepath.Join(dir, "nothing")}, "nothing"},
		"bad name":        {Config{Name: "../x"}, `"../x"`},
		"log directory":   {Config{Name: "x", LogFile: filepath.Join(blocked, "x.log")}, "start x"},
		"PID directory":   {Config{Name: "x", PIDDir: filepath.Join(blocked, "run")}, "start x"},
	} {
		p, err := Start(c.cfg)
		if err == nil {
			_ = p.Kill()
		}
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: err = %v, want one with %q", name, err, c.want)
		}
	}
}

func TestLogTail(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "x.log")
	testutil.Ok(t, os.WriteFile(path, []byte("one\ntwo\nthree\n"), 0o600))
	for n, want := range map[int64]string{100: "one\ntwo\nthree\n", 12: "two\nthree\n", 7: "three\n", 1: ""} {
		if got := LogTail(path, n); got != want {
			t.Errorf("last %d: %q, want %q", n, got, want)
		}
	}
	if got := LogTail(path+".none", 10); got != "" {
		t.Errorf("missing file: %q", got)
	}
}

func pidFiles(dir string) []string {
	files, _ := filepath.Glob(filepath.Join(dir, "kid.*.pid"))
	return files
}

// crash runs a supervisor of a stubborn child in a separate process, kills it with SIGKILL, and returns the leftover child and the
// PID directory.
func crash(t *testing.T) (Identity, string) {
	t.Helper()
	dir := t.TempDir()
	file := filepath.Join(dir, "ready")
	supervisor := exec.Command(os.Args[0], file)
	supervisor.Env = append(os.Environ(), childEnv+"=supervisor")
	testutil.Ok(t, supervisor.Start())
	left := identify(t, readyPID(t, file))
	t.Cleanup(func() {
		if left.Alive() {
			_ = syscall.Kill(left.PID, syscall.SIGKILL)
		}
	})
	run := filepath.Join(dir, "run")
	testutil.Eventually(t, "pid file", func() bool {
		return len(pidFiles(run)) == 1
	})

	// While the supervisor runs, its child is not a leftover.
	if found, err := CleanStale(t.Context(), run, time.Second, slog.New(slog.DiscardHandler)); err != nil || len(found) != 0 {
		t.Fatalf("CleanStale found %v, %v while the supervisor runs", found, err)
	}
	testutil.Ok(t, supervisor.Process.Kill())
	_ = supervisor.Wait()
	if !left.Alive() {
		t.Fatal("the stubborn child exited with its supervisor")
	}
	return left, run
}

func TestCleanStaleFindsTheLeftovers(t *testing.T) {
	t.Parallel()
	left, run := crash(t)
	found, err := CleanStale(t.Context(), run, 50*time.Millisecond, slog.New(slog.DiscardHandler))
	testutil.Ok(t, err)
	if len(found) != 1 || found[0].Name != "kid" || found[0].PID != left.PID || !found[0].Running || found[0].Owner == 0 {
		t.Fatalf("found %+v, want kid, %d, running", found, left.PID)
	}
	if left.Alive() {
		t.Fatal("the leftover is alive")
	}
	found, err = CleanStale(t.Context(), run, time.Second, slog.New(slog.DiscardHandler))
	if err != nil || len(found) != 0 {
		t.Fatalf("second time: %v, %v", found, err)
	}
}

func TestCleanStaleDoesNotStopOtherProcesses(t *testing.T) {
	t.Parallel()
	left, run := crash(t)
	path := pidFiles(run)[0]
	f := testutil.Must(readPIDFile(path))(t)
	for name, alter := range map[string]func(*Identity){
		"another start time": func(id *Identity) { id.Start += "1" },
		"another executable": func(id *Identity) { id.Exe = "/bin/other" },
		"nothing known":      func(id *Identity) { id.Start, id.Exe = "", "" },
	} {
		g := f
		alter(&g.Process)
		testutil.Ok(t, writePIDFile(path, g))
		found, err := CleanStale(t.Context(), run, 50*time.Millisecond, slog.New(slog.DiscardHandler))
		if err != nil || len(found) != 1 || found[0].Running {
			t.Errorf("%s: found %v, %v; want one that is not running", name, found, err)
		}
		if !left.Alive() {
			t.Fatalf("%s: an unrelated process was stopped", name)
		}
	}
}

func TestCleanStaleBadInput(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if found, err := CleanStale(t.Context(), filepath.Join(dir, "none"), time.Second, slog.New(slog.DiscardHandler)); err != nil || found != nil {
		t.Fatalf("missing directory: %v, %v", found, err)
	}
	junk := filepath.Join(dir, "junk.pid")
	testutil.Ok(t, os.WriteFile(junk, []byte("1"), 0o600))
	testutil.Ok(t, os.WriteFile(filepath.Join(dir, "notes.txt"), []byte("1"), 0o600))
	var log strings.Builder
	if found, err := CleanStale(t.Context(), dir, time.Second, slog.New(slog.NewTextHandler(&log, nil))); err != nil || len(found) != 0 {
		t.Fatalf("got %v, %v, want nothing found and no error", found, err)
	}
	if !strings.Contains(log.String(), junk) {
		t.Errorf("the log is %q, want %s in it", log.String(), junk)
	}
	if _, err := os.Stat(junk); err != nil {
		t.Fatalf("an unrelated file was removed: %v", err)
	}
}

func TestIdentityMatchesOnlyItsProcess(t *testing.T) {
	t.Parallel()
	me, err := Self()
	if err != nil || !me.Alive() {
		t.Fatalf("Self() = %v, %v; alive %v", me, err, me.Alive())
	}
	if (Identity{PID: me.PID}).Alive() || (Identity{}).Alive() {
		t.Fatal("an identity without start time and executable counts as alive")
	}
	cmd := exec.Command(os.Args[0], "-test.run=^$")
	testutil.Ok(t, cmd.Start())
	testutil.Eventually(t, "the child is a zombie and counts as gone", func() bool {
		_, err := Identify(cmd.Process.Pid)
		return err != nil && !errors.Is(err, ErrUnknown)
	})
	_ = cmd.Wait()
}

// FuzzPIDFile checks that a damaged PID file is rejected, or names a process that is not taken for a child.
func FuzzPIDFile(f *testing.F) {
	f.Add([]byte(`{"name":"worker-1","process":{"pid":5}}`))
	f.Add([]byte(`{"process":{"pid":-1}}`))
	f.Add([]byte(`{"process":{"pid":0}}`))
	f.Add([]byte(`{"name":"x"`))
	path := filepath.Join(f.TempDir(), "x.1.pid")
	f.Fuzz(func(t *testing.T, raw []byte) {
		testutil.Ok(t, os.WriteFile(path, raw, 0o600))
		file, err := readPIDFile(path)
		if err != nil {
			return
		}
		if p := file.Process; p.PID <= 1 && p.Alive() {
			t.Errorf("%q: process %d is treated as a child", raw, p.PID)
		}
	})
}
