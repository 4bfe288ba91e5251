//go:build e2e && unix

package chaos

import (
	"bufio"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"muster/internal/testutil"
	"muster/tasks"
)

// fleet contains the running and exited worker processes of a test.
type fleet struct {
	t   *testing.T
	url string
	dir string // directory of journals and logs

	mu      sync.Mutex // guards the fields below
	names   []string
	running []*worker       // all that were started
	doomed  map[string]bool // workers that are or may be killed
	started int
}

func newFleet(t *testing.T, url string) *fleet {
	return &fleet{t: t, url: url, dir: t.TempDir(), doomed: map[string]bool{}}
}

// worker is a worker process.
type worker struct {
	name string
	cmd  *exec.Cmd
	done chan struct{} // closed when it has exited
}

// start starts a worker that dies at a point ("" for none), and returns when it accepts tasks or has exited.
func (f *fleet) start(die string) (*worker, error) {
	f.mu.Lock()
	f.started++
	w := &worker{name: fmt.Sprintf("w%03d", f.started), done: make(chan struct{})}
	f.names = append(f.names, w.name)
	f.mu.Unlock()
	w.cmd = exec.Command(os.Args[0])
	w.cmd.Env = append(os.Environ(), workerURL+"="+f.url, workerName+"="+w.name, workerDir+"="+f.dir, workerDie+"="+die)
	log, err := os.Create(filepath.Join(f.dir, w.name+".log"))
	if err != nil {
		return nil, err
	}
	w.cmd.Stderr = log
	out, err := w.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	err = w.cmd.Start()
	_ = log.Close()
	if err != nil {
		return nil, err
	}
	lines := bufio.NewScanner(out)
	lines.Scan() // "ready", or EOF
	go func() {
		defer close(w.done)
		_ = w.cmd.Wait() // the exit status is in ProcessState
	}()
	f.t.Cleanup(w.kill)
	f.mu.Lock()
	f.running = append(f.running, w)
	f.mu.Unlock()
	return w, nil
}

func (w *worker) ended() bool {
	select {
	case <-w.done:
		return true
	default:
		return false
	}
}

// kill kills the worker with SIGKILL.
func (w *worker) kill() {
	if !w.ended() {
		_ = w.cmd.Process.Kill()
	}
	<-w.done
}

// doom records that w may be killed, so that its tasks in flight may run again.
func (f *fleet) doom(w *worker) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.doomed[w.name] = true
}

// stop stops the worker after its running tasks.
func (w *worker) stop() {
	_ = w.cmd.Process.Signal(syscall.SIGTERM)
	<-w.done
}

// stop stops all workers after their running tasks.
func (f *fleet) stop() {
	for _, w := range f.running {
		w.stop()
	}
}

// logs returns the last log lines of each worker.
func (f *fleet) logs() string {
	out := ""
	for _, n := range f.names {
		raw, _ := os.ReadFile(filepath.Join(f.dir, n+".log"))
		if len(raw) > 600 {
			raw = raw[len(raw)-600:]
		}
		if len(raw) > 0 {
			out += n + ": " + string(raw) + "\n"
		}
	}
	return out
}

// seed returns a random source for a test. It logs the seed and reads it from the environment if set.
func seed(t *testing.T) *rand.Rand {
	t.Helper()
	n := rand.Uint64() >> 12
	if s := os.Getenv("MUSTER_CHAOS_SEED"); s != "" {
		var err error
		if n, err = strconv.ParseUint(s, 10, 64); err != nil {
			t.Fatalf("MUSTER_CHAOS_SEED: %v", err)
		}
	}
	fmt.Fprintf(os.Stderr, "%s: MUSTER_CHAOS_SEED=%d\n", t.Name(), n)
	return rand.New(rand.NewPCG(n, 1))
}

func connect(t *testing.T, url string) *tasks.Client {
	t.Helper()
	c := testutil.Must(tasks.Connect(t.Context(), url))(t)
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// waitLimit is the time within which workflows must finish after the last failure.
const waitLimit = 60 * time.Second
