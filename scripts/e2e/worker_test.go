//go:build e2e && unix

package e2e

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"muster/internal/redistest"
	"muster/internal/testutil"
	"muster/tasks"
	"muster/tasks/taskstest"
	"muster/tasks/tasktype"
)

// Environment variables of a worker process for workflows, which is a process of this test binary.
const (
	workerURL = "MUSTER_E2E_WORKER_URL"
	workerDir = "MUSTER_E2E_WORKER_DIR" // directory of its journal
	workerDie = "MUSTER_E2E_WORKER_DIE" // "<visit> <point>" of its death
	soakAddr  = "MUSTER_E2E_SOAK_ADDR"  // listen address of the metrics of a worker of the soak
)

// slots is the concurrency of a worker.
const slots = 6

// runWorker implements the main function of a worker process. It records each run in its journal before it starts.
func runWorker(url string) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	c, err := tasks.Connect(ctx, url)
	if err != nil {
		return err
	}
	defer c.Close()
	name := workerOf(os.Getpid())
	journal, err := os.OpenFile(journalOf(os.Getenv(workerDir), name), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer journal.Close()

	d := newDoom(os.Getenv(workerDie), c.Redis())
	m := tasks.NewMux()
	m.Use(func(ctx context.Context, info tasktype.Info, next func(context.Context) error) error {
		line := fmt.Sprintf("%s %d %d\n", info.Workflow+"."+info.Node, info.Attempt, time.Now().UnixNano())
		if _, err := io.WriteString(journal, line); err != nil {
			panic(err)
		}
		d.visit("handler")
		pause(ctx, rand.N(15*time.Millisecond)) // work
		err := next(ctx)
		d.visit("returned")
		return err
	})
	taskstest.HandleRandom(m)
	if addr := os.Getenv(soakAddr); addr != "" {
		if err := workInSoak(ctx, c, m, addr); err != nil {
			return err
		}
	}
	w, err := tasks.NewWorker(c, m, tasks.WorkerConfig{
		Name: name, Concurrency: slots, Grace: 5 * time.Second,
		Logger: slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn})),
		Ready:  func() { fmt.Println("ready") },
	})
	if err != nil {
		return err
	}
	return w.Run(ctx)
}

func workerOf(pid int) string { return fmt.Sprint("w", pid) }

func journalOf(dir, name string) string { return filepath.Join(dir, name+".journal") }

// workers are the running and exited worker processes of a test.
type workers struct {
	t   *testing.T
	url string
	dir string // directory of journals

	mu  sync.Mutex // guards all
	all []*worker
}

// worker is a worker process. A doomed one is or may be killed, so that its tasks in flight may run again.
type worker struct {
	*run
	name   string
	doomed bool
}

func newWorkers(t *testing.T, url string) *workers {
	return &workers{t: t, url: url, dir: t.TempDir()}
}

// start starts a worker that dies at a point ("" for none), and returns when it accepts tasks or has exited.
func (f *workers) start(die string) *worker {
	r := launch(f.t, append(os.Environ(), workerURL+"="+f.url, workerDir+"="+f.dir, workerDie+"="+die), exec.Command(os.Args[0]))
	w := &worker{run: r, name: workerOf(r.cmd.Process.Pid)}
	f.mu.Lock()
	f.all = append(f.all, w)
	f.mu.Unlock()
	if !testutil.Becomes(func() bool { return w.ended() || w.stdout.String() != "" }) {
		f.t.Errorf("worker %s is not ready", w.name)
	}
	return w
}

// stop stops all workers after their running tasks.
func (f *workers) stop() {
	for _, w := range f.all {
		w.end(syscall.SIGTERM)
	}
}

// entry is a line of a journal: the start of a run.
type entry struct {
	key     string // node key
	attempt int
	at      int64 // unix ns
}

func readJournal(t *testing.T, dir, name string) []entry {
	t.Helper()
	f, err := os.Open(journalOf(dir, name))
	if os.IsNotExist(err) {
		return nil // it died before its first run
	}
	testutil.Ok(t, err)
	defer f.Close()
	var out []entry
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		var e entry
		if n, err := fmt.Sscan(lines.Text(), &e.key, &e.attempt, &e.at); n != 3 {
			t.Fatalf("journal of %s: line %q: %v", name, lines.Text(), err)
		}
		out = append(out, e)
	}
	return out
}

// points are the possible points of death of a worker: before or after a kind of Redis call, in a handler, and between a handler
// and the storage of its result. All other writes are calls of the engine, so these cover all gaps between two writes of a node.
var points = []string{"before engine", "after engine", "handler", "returned"}

// doom kills its process at the chosen visit of a point.
type doom struct {
	point string
	left  atomic.Int64
}

// newDoom returns a doom and adds a hook to rdb for the points at Redis calls.
func newDoom(at string, rdb redis.UniversalClient) *doom {
	visit, point, _ := strings.Cut(at, " ")
	n, _ := strconv.Atoi(visit) // 0 for none
	d := &doom{point: point}
	d.left.Store(int64(n))
	if when, ok := strings.CutSuffix(point, " engine"); ok {
		fault := redistest.NewFault(redistest.Killed, n)
		fault.Match = ofEngine
		if when == "after" {
			fault.Reply = fault.Match
		}
		fault.Arm()
		rdb.AddHook(fault)
	}
	return d
}

func (d *doom) visit(point string) {
	if point == d.point && d.left.Add(-1) == 0 {
		redistest.Die()
	}
}

// ofEngine reports whether a Redis call is a script of the engine.
func ofEngine(cmd redis.Cmder) bool {
	args := cmd.Args()
	if len(args) < 5 || cmd.Name() != "evalsha" && cmd.Name() != "eval" {
		return false
	}
	key := fmt.Sprint(args[3])
	return strings.HasPrefix(key, "muster:{") && strings.HasSuffix(key, "}:")
}
