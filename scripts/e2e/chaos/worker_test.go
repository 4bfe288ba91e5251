//go:build e2e && unix

package chaos

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
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

// Environment variables of a worker process, which is a process of this test binary.
const (
	workerURL  = "MUSTER_CHAOS_WORKER_URL"
	workerName = "MUSTER_CHAOS_WORKER_NAME"
	workerDir  = "MUSTER_CHAOS_WORKER_DIR" // directory of its journal
	workerDie  = "MUSTER_CHAOS_WORKER_DIE" // "<point> <visit>" of its death
)

func TestMain(m *testing.M) {
	if url := os.Getenv(workerURL); url != "" {
		if err := work(url); err != nil {
			fmt.Fprintln(os.Stderr, "worker:", err)
			os.Exit(1)
		}
		return
	}
	redistest.Main(m)
}

// slots is the concurrency of a worker.
const slots = 6

// work implements the main function of a worker process. It records each run in its journal before it starts.
func work(url string) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	c, err := tasks.Connect(ctx, url)
	if err != nil {
		return err
	}
	defer c.Close()
	name := os.Getenv(workerName)
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
		select {
		case <-time.After(rand.N(15 * time.Millisecond)): // work
		case <-ctx.Done():
		}
		err := next(ctx)
		d.visit("returned")
		return err
	})
	taskstest.HandleRandom(m)
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

func journalOf(dir, name string) string { return filepath.Join(dir, name+".journal") }

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
		w := strings.Fields(lines.Text())
		if len(w) != 3 {
			t.Fatalf("journal of %s: line %q", name, lines.Text())
		}
		n, nerr := strconv.Atoi(w[1])
		at, aerr := strconv.ParseInt(w[2], 10, 64)
		if nerr != nil || aerr != nil {
			t.Fatalf("journal of %s: line %q", name, lines.Text())
		}
		out = append(out, entry{w[0], n, at})
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
	d := &doom{}
	cut := strings.LastIndexByte(at, ' ')
	if cut < 0 {
		return d
	}
	d.point = at[:cut]
	n, _ := strconv.Atoi(at[cut+1:])
	d.left.Store(int64(n))
	fault := redistest.NewFault(redistest.Killed, n)
	if when, kind, ok := strings.Cut(d.point, " "); ok {
		fault.Match = func(cmd redis.Cmder) bool { return kindOf(cmd) == kind }
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

// kindOf returns the kind of a Redis call: "engine" for a script of the engine, or "".
func kindOf(cmd redis.Cmder) string {
	args := cmd.Args()
	if len(args) < 5 || cmd.Name() != "evalsha" && cmd.Name() != "eval" {
		return ""
	}
	if key := fmt.Sprint(args[3]); strings.HasPrefix(key, "muster:{") && strings.HasSuffix(key, "}:") {
		return "engine"
	}
	return ""
}
