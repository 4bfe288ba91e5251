package record

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"muster/internal/testutil"
	"muster/sites/internal/store"
	"muster/tasks"
)

// writerChildEnv turns this test binary into a process that writes the records of all open jobs until its standard input ends.
// The variable has the Redis, the directory and the sinks.
const writerChildEnv = "MUSTER_SITES_TEST_WRITER"

// frozenLease is short because tests wait for its expiry many times.
const frozenLease = 100 * time.Millisecond

func frozenRecorder(rdb redis.UniversalClient, dir string, sinks []string) (*Recorder, error) {
	return New(Config{Client: tasks.NewClient(rdb), OutDir: dir, Sinks: sinks, Lease: frozenLease})
}

// stepper is a hook of a Redis client. It prints the next command on its job and each received reply to standard output, and
// continues after reading a line. Between two such steps the process changes files. Steps count from the claim of the lease.
type stepper struct {
	mu   sync.Mutex // guards all
	in   *bufio.Reader
	step int
}

// claimArgs is the number of arguments of a claim, fewer than any other script of a queue that a writer runs.
const claimArgs = 21

func (s *stepper) say(when string, cmd redis.Cmder) {
	if name := cmd.Name(); name != "evalsha" && name != "xread" && name != "set" || !strings.Contains(fmt.Sprint(cmd.Args()...), "frozen-job") {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(cmd.Args()) == claimArgs && when == "before" {
		s.step = 0
	}
	s.step++
	fmt.Printf("step %d: %s %s\n", s.step, when, cmd.Name())
	if _, err := s.in.ReadString('\n'); err != nil {
		os.Exit(0) // the test has ended
	}
}

func (s *stepper) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) { return next(ctx, network, addr) }
}

func (s *stepper) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		s.say("before", cmd)
		err := next(ctx, cmd)
		s.say("after", cmd)
		return err
	}
}

func (s *stepper) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func writerChild(args string) error {
	given := strings.Fields(args)
	opt, err := redis.ParseURL(given[0])
	if err != nil {
		return err
	}
	rdb, plain := redis.NewClient(opt), redis.NewClient(opt)
	steps := &stepper{in: bufio.NewReader(os.Stdin)}
	rdb.AddHook(steps)
	r, err := frozenRecorder(rdb, given[1], given[2:])
	if err != nil {
		return err
	}
	ctx := context.Background()
	for { // as Run does, without its pauses
		open, err := plain.SMembers(ctx, store.OpenJobsKey).Result()
		if err != nil {
			return err
		}
		for _, id := range open {
			if w, err := r.writer(ctx, id); err == nil {
				w.lastCheck = time.Now() // its workflow is not over
				r.writeJob(ctx, id)
			}
		}
	}
}

// frozenWriter is a process that writes records and that the test can stop.
type frozenWriter struct {
	t    *testing.T
	cmd  *exec.Cmd
	in   io.Writer
	stop chan string   // the step at which it waits, to be stopped
	over chan struct{} // closed at the end of the test

	mu      sync.Mutex             // guards the fields below
	want    func(step string) bool // whether to stop it at a step
	waiting bool                   // its last step is one to stop at
	steps   int                    // it has taken
	gone    bool
}

func startWriter(t *testing.T, args ...string) *frozenWriter {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), writerChildEnv+"="+strings.Join(args, " "))
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	w := &frozenWriter{t: t, cmd: cmd, in: in, stop: make(chan string), over: make(chan struct{}), want: func(string) bool { return false }}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for lines := bufio.NewScanner(out); lines.Scan(); {
			w.mu.Lock()
			stop := w.want(lines.Text())
			w.waiting = stop
			w.steps++
			w.mu.Unlock()
			if stop {
				select {
				case w.stop <- lines.Text():
				case <-w.over:
				}
				continue
			}
			_, _ = io.WriteString(in, "go\n")
		}
		w.mu.Lock()
		w.gone = true
		w.mu.Unlock()
	}()
	t.Cleanup(func() {
		close(w.over)
		_ = cmd.Process.Kill()
		<-ended
		_ = cmd.Wait()
	})
	return w
}

// stopAt selects the steps at which to stop.
func (w *frozenWriter) stopAt(want func(step string) bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.want = want
}

// freeze waits until the writer reaches a selected step and stops it there. It returns "" if enough comes first.
func (w *frozenWriter) freeze(enough func() bool) string {
	w.t.Helper()
	step := ""
	testutil.Eventually(w.t, "the writer comes to a step, or has done enough", func() bool {
		select {
		case step = <-w.stop:
			w.mu.Lock()
			w.waiting = false
			w.mu.Unlock()
			return true
		default:
			w.alive()
			return enough()
		}
	})
	if step == "" { // it may have come to a step by now
		w.mu.Lock()
		w.want = func(string) bool { return false }
		waiting := w.waiting
		w.mu.Unlock()
		if !waiting {
			return ""
		}
		step = <-w.stop
	}
	if err := w.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		w.t.Fatal(err)
	}
	var status syscall.WaitStatus
	for !status.Stopped() {
		if _, err := syscall.Wait4(w.cmd.Process.Pid, &status, syscall.WUNTRACED, nil); err != nil && !errors.Is(err, syscall.EINTR) {
			w.t.Fatal(err)
		}
	}
	return step
}

// thaw resumes the writer.
func (w *frozenWriter) thaw() {
	w.t.Helper()
	if _, err := io.WriteString(w.in, "go\n"); err != nil {
		w.t.Fatal(err)
	}
	if err := w.cmd.Process.Signal(syscall.SIGCONT); err != nil {
		w.t.Fatal(err)
	}
}

// awake waits until the writer has begun a new round, and so has completed its last action.
func (w *frozenWriter) awake() {
	w.t.Helper()
	again := 0
	w.stopAt(func(step string) bool {
		if strings.HasPrefix(step, "step 1:") {
			again++
		}
		return false
	})
	testutil.Eventually(w.t, "the writer to complete its action", func() bool {
		w.alive()
		w.mu.Lock()
		defer w.mu.Unlock()
		return again > 0
	})
}

func (w *frozenWriter) alive() {
	w.t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.gone {
		w.t.Fatal("got a writer that has ended, want one that runs")
	}
}
