package tasks_test

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"muster/internal/testutil"
	"muster/tasks"
	"muster/tasks/redistest"
)

// fillMemory lets Redis take nothing that needs memory any more.
func fillMemory(t *testing.T, rdb redis.UniversalClient) {
	t.Helper()
	testutil.Ok(t, rdb.ConfigSet(t.Context(), "maxmemory", "1").Err())
	if err := rdb.Set(t.Context(), "x", "x", 0).Err(); !redis.HasErrorPrefix(err, "OOM") {
		t.Fatalf("a write to a full Redis: %v, want OOM", err)
	}
}

func freeMemory(t *testing.T, rdb redis.UniversalClient) {
	t.Helper()
	testutil.Ok(t, rdb.ConfigSet(t.Context(), "maxmemory", "0").Err())
}

// answers reports whether exactly the workers with these names reply to a ping.
func answers(t *testing.T, c *tasks.Client, wait time.Duration, names ...string) bool {
	t.Helper()
	pongs, err := c.PingWorkers(t.Context(), wait)
	if err != nil || len(pongs) != len(names) {
		return false
	}
	for i, p := range pongs {
		if !p.Answered || p.Worker != names[i] {
			return false
		}
	}
	return true
}

// listed returns the names of the live workers.
func listed(t *testing.T, c *tasks.Client) (names []string) {
	t.Helper()
	ws, err := c.Workers(t.Context())
	testutil.Ok(t, err)
	for _, w := range ws {
		names = append(names, w.Name)
	}
	return names
}

// A Redis out of memory rejects a send with an error that names the remedy. Running workflows continue when memory is free.
func TestRedisOutOfMemory(t *testing.T) {
	t.Parallel()
	rdb := redistest.Server(t).Client()
	w := newWorld(t, rdb)
	run := sent(t, w, tasks.Chord(tasks.Map(tasks.After(Hold.S("memory"), Range.S(3)), Double), Sum))
	testutil.Eventually(t, "the first task runs", func() bool { return len(w.noted("at memory")) == 1 })
	fillMemory(t, rdb)
	if _, err := ID.S(1).Send(t.Context(), w.client); !tasks.Refused(err) || !strings.Contains(err.Error(), "raise it") {
		t.Errorf("send: got %v, want an error that names the remedy", err)
	}
	w.open("memory")
	testutil.Eventually(t, "a call of the worker is rejected", func() bool { return rejected(t, rdb, "OOM") > 2 })
	freeMemory(t, rdb)
	wantValue(t, run, 6)
	ranOnce(t, w, run.ID())
}

// rejected returns how many calls Redis rejected with a kind of error.
func rejected(t *testing.T, rdb redis.UniversalClient, kind string) (n int) {
	t.Helper()
	info, err := rdb.Info(t.Context(), "errorstats").Result()
	testutil.Ok(t, err)
	_, after, _ := strings.Cut(info, "errorstat_"+kind+":count=")
	_, _ = fmt.Sscan(after, &n)
	return n
}

// ranOnce checks that each task of a workflow that has ended ran once.
func ranOnce(t *testing.T, w *world, id string) {
	t.Helper()
	ended(t, w, id)
	for _, n := range nodes(t, w, id) {
		if times := w.ran(id + "." + n.ID); times != 1 && n.Queue != "" {
			t.Errorf("%s ran %d times, want once", n.Task, times)
		}
	}
}

// Redis rejects writes for a while, as a replica does: results of that time are stored later, and no task runs twice.
func TestNothingRunsTwiceWhileRedisIsReadOnly(t *testing.T) {
	t.Parallel()
	rdb := redistest.Server(t).Client()
	w := newWorld(t, rdb, func(c *tasks.WorkerConfig) { c.Concurrency = 32 })
	shapes := []tasks.Signature[int]{
		tasks.Chain(Hold.S("shut"), Inc),
		tasks.Chord(tasks.Group(Hold.S("shut"), tasks.Chain(ID.S(1), Inc)), Sum),
		tasks.Chord(tasks.Map(tasks.After(Hold.S("shut"), Range.S(3)), Double), Sum),
		tasks.OnSuccess(tasks.Chain(Hold.S("shut"), Inc), Note),
		tasks.Chain(tasks.Join(Hold.S("shut"), Replace.S(AB{2, 3})), Plus),
	}
	var runs []*tasks.AsyncResult[int]
	for i := range 25 {
		runs = append(runs, sent(t, w, shapes[i%len(shapes)]))
	}
	testutil.Eventually(t, "each is at the task that waits", func() bool { return len(w.noted("at shut")) == len(runs) })
	testutil.Ok(t, rdb.(*redis.Client).ReplicaOf(t.Context(), "127.0.0.1", "1").Err())
	if _, err := ID.S(1).Send(t.Context(), w.client); !tasks.Refused(err) {
		t.Errorf("send: got %v, want a refusal", err)
	}
	before := rejected(t, rdb, "READONLY")
	w.open("shut")
	testutil.Eventually(t, "the results are rejected", func() bool { return rejected(t, rdb, "READONLY") > before+len(runs) })
	testutil.Ok(t, rdb.(*redis.Client).ReplicaOf(t.Context(), "NO", "ONE").Err())
	want := []int{2, 3, 6, 2, 6}
	for i, run := range runs {
		wantValue(t, run, want[i%len(want)])
		ranOnce(t, w, run.ID())
	}
}

// While the disk of Redis is full nothing can be stored, not even that a worker lives.
func TestFullDiskOfRedisMakesNobodyGone(t *testing.T) {
	t.Parallel()
	srv := redistest.Server(t, "appendonly", "yes")
	rdb := srv.Client()
	w := newWorld(t, rdb)
	name := w.worker.Name()
	run := sent(t, w, tasks.Chain(Hold.S("disk"), Inc))
	testutil.Eventually(t, "the first task runs", func() bool { return len(w.noted("at disk")) == 1 })

	srv.FillDisk()
	err := w.client.Writable(t.Context())
	if !tasks.Refused(err) || !strings.Contains(err.Error(), srv.Dir) || !strings.Contains(err.Error(), "disk") {
		t.Errorf("writable: got %v, want one that names the disk and %s", err, srv.Dir)
	}
	w.open("disk") // the task ends, and that cannot be stored
	testutil.Eventually(t, "the list of workers is out of date", func() bool {
		_, err := w.client.Workers(t.Context())
		return tasks.Refused(err)
	})
	if !answers(t, w.client, 2*time.Second, name) {
		t.Error("ping of a live worker: got no reply, want one")
	}
	if _, err := ID.S(1).Send(t.Context(), w.client); !tasks.Refused(err) {
		t.Errorf("send: got %v, want a refusal", err)
	}
	if c, err := tasks.Connect(t.Context(), srv.URL()); err != nil {
		t.Errorf("connect to a Redis whose disk is full: got %v, want no error", err)
	} else {
		if _, err := tasks.Attach[int](c, run.ID()).Status(t.Context()); err != nil {
			t.Errorf("status of a workflow: got %v, want no error", err)
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}

	srv.FreeDisk()
	wantValue(t, run, 2)
	for _, n := range nodes(t, w, run.ID()) {
		if n.Attempts != 1 || w.ran(run.ID()+"."+n.ID) != 1 {
			t.Errorf("task %s: %d attempts, ran %d times, want 1 and 1", n.Task, n.Attempts, w.ran(run.ID()+"."+n.ID))
		}
	}
	if err := w.client.Writable(t.Context()); err != nil {
		t.Errorf("writable again: got %v, want no error", err)
	}
}

func TestWorkerWaitsForRoomOnTheDiskOfRedis(t *testing.T) {
	t.Parallel()
	srv := redistest.Server(t, "appendonly", "yes")
	client := tasks.NewClient(srv.Client())
	defer client.Close()
	srv.FillDisk()
	said := make(chan string, 16)
	ready := make(chan struct{})
	worker, err := tasks.NewWorker(client, tasks.NewMux(), tasks.WorkerConfig{Ready: func() { close(ready) }, Logger: slog.New(lines(said))})
	testutil.Ok(t, err)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- worker.Run(ctx) }()
	if got := <-said; !strings.Contains(got, "disk") || !strings.Contains(got, srv.Dir) {
		t.Errorf("the worker logs %q, want the full disk and its path", got)
	}
	srv.FreeDisk()
	select {
	case <-ready:
	case err := <-ended:
		t.Fatalf("the worker ended: %v", err)
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// lines is a log whose lines can be read, as far as there is room.
type lines chan string

func (l lines) Enabled(context.Context, slog.Level) bool { return true }
func (l lines) WithAttrs([]slog.Attr) slog.Handler       { return l }
func (l lines) WithGroup(string) slog.Handler            { return l }
func (l lines) Handle(_ context.Context, r slog.Record) error {
	line := r.Message
	r.Attrs(func(a slog.Attr) bool { line += " " + a.String(); return true })
	select {
	case l <- line:
	default:
	}
	return nil
}
