package tasks_test

import (
	"bytes"
	"context"
	"log/slog"
	"slices"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/redis/go-redis/v9"

	"muster/internal/redistest"
	"muster/internal/testutil"
	"muster/tasks"
)

// calls returns a fault that only counts calls of a kind.
func calls(rdb redis.UniversalClient, kind string) *redistest.Fault {
	f := redistest.NewFault(redistest.Slow, 0)
	f.Match = func(cmd redis.Cmder) bool { return kindOf(cmd) == kind }
	rdb.AddHook(f)
	f.Arm()
	return f
}

// A send wakes one of the workers that wait, and the others make no calls.
func TestSendWakesOneWorker(t *testing.T) {
	t.Parallel()
	srv := redistest.Server(t)
	var finishes []*redistest.Fault
	var last *world
	for range 4 {
		rdb := srv.Client()
		finishes = append(finishes, calls(rdb, "finish1"))
		last = newWorld(t, rdb)
	}
	for n := 1; n <= 20; n++ {
		if got, err := send(t, last, ID.S(n)); err != nil || got != n {
			t.Errorf("got %v, %v, want %v", got, err, n)
		}
	}
	sum, most := 0, 0
	for _, f := range finishes {
		sum += f.Calls()
		most = max(most, f.Calls())
	}
	if sum > 24 || most > 12 { // a slot that ends can meet the next task
		t.Errorf("%d results for 20 tasks, %d by one of 4 workers; want one for each, and workers by turns", sum, most)
	}
}

// Entries that no script wrote do not stop a queue.
func TestForeignEntriesOnARing(t *testing.T) {
	t.Parallel()
	redistest.Both(t, func(t *testing.T, rdb redis.UniversalClient) {
		const ring = "muster:{0}:ring:default"
		w := newWorld(t, rdb)
		for _, entry := range []string{"", "x y", "=", "=none", "+", "a/b/c", "@", "none~", "none~@3", "none~/0", "none~/5-1"} {
			rdb.RPush(t.Context(), ring, entry)
		}
		if got, err := send(t, w, tasks.Chord(tasks.Each(ints(30), ID), Sum)); err != nil || got != 435 {
			t.Errorf("got %v, %v, want %v", got, err, 435)
		}
		testutil.Eventually(t, "all entries are gone", func() bool { return rdb.Exists(t.Context(), ring).Val() == 0 })
		if got, err := send(t, w, ID.S(3)); err != nil || got != 3 {
			t.Errorf("got %v, %v, want %v", got, err, 3)
		}
	})
}

// A worker that freezes while it waits takes one entry with it. Another worker runs the task once the first one is dead.
func TestWorkerFreezesWhileItWaits(t *testing.T) {
	t.Parallel()
	url := redistest.URL(t)
	frozen := child(t, url, "frozen")
	testutil.Ok(t, frozen.Process.Signal(syscall.SIGSTOP))
	other := newWorld(t, connect(t, url).Redis())
	for n := range 3 {
		if got, err := send(t, other, ID.S(n)); err != nil || got != n {
			t.Errorf("got %v, %v, want %v", got, err, n)
		}
	}
	testutil.Ok(t, frozen.Process.Signal(syscall.SIGCONT))
	for n := range 3 { // it returns the entry that it got, and entries of a task that it has no handler for
		if got, err := send(t, other, ID.S(n)); err != nil || got != n {
			t.Fatalf("after it continues: got %v, %v, want %d", got, err, n)
		}
	}
}

// A worker with a queue that may use one slot takes the next task of the queue when that slot is free, also while it waits
// for other queues.
func TestRingOfAQueueWithALimit(t *testing.T) {
	t.Parallel()
	redistest.Both(t, func(t *testing.T, rdb redis.UniversalClient) {
		w := newWorld(t, rdb, func(c *tasks.WorkerConfig) {
			c.Queues, c.QueueLimits = map[string]int{"default": 1, "one": 1}, map[string]int{"one": 1}
		})
		first := sent(t, w, Hold.S("limit", tasks.Queue("one")))
		testutil.Eventually(t, "it runs", func() bool { return len(w.noted("at limit")) == 1 })
		if got, err := send(t, w, ID.S(3)); err != nil || got != 3 {
			t.Fatalf("another queue: got %v, %v, want 3", got, err)
		}
		second := sent(t, w, ID.S(2, tasks.Queue("one")))
		w.open("limit")
		wantValue(t, second, 2)
		if _, err := first.Wait(limited(t)); err != nil {
			t.Fatal(err)
		}
	})
}

// A worker whose client has two connections runs tasks, and stops.
func TestWorkerWithTwoConnections(t *testing.T) {
	t.Parallel()
	opt := *redistest.New(t).(*redis.Client).Options()
	opt.PoolSize = 2
	rdb := redis.NewClient(&opt)
	t.Cleanup(func() { _ = rdb.Close() })
	w := newWorld(t, rdb)
	ctx, cancel := context.WithTimeout(t.Context(), waitLimit)
	defer cancel()
	run := sent(t, w, tasks.Chord(tasks.Each(ints(300), ID), Sum))
	if got, err := run.Wait(ctx); err != nil || got != 44850 {
		t.Fatalf("got %v, %v, want 44850", got, err)
	}
}

// failedWaits counts the log lines about waits that have failed.
type failedWaits struct{ atomic.Int64 }

// Write implements io.Writer.
func (f *failedWaits) Write(line []byte) (int, error) {
	if bytes.Contains(line, []byte("wait for ready nodes failed")) {
		f.Add(1)
	}
	return len(line), nil
}

// An outage of Redis is one warning of the wait for ready nodes, not one for each attempt.
func TestOutageIsOneWarning(t *testing.T) {
	t.Parallel()
	srv := redistest.Server(t)
	rdb := srv.Client()
	var warnings failedWaits
	w := newWorld(t, rdb, func(c *tasks.WorkerConfig) { c.Logger = slog.New(slog.NewTextHandler(&warnings, nil)) })
	for n := range 2 {
		srv.Kill()
		testutil.Eventually(t, "it has waited in vain", func() bool { return warnings.Load() == int64(n+1) })
		srv.Start()
		testutil.Eventually(t, "Redis replies", func() bool { return rdb.Ping(t.Context()).Err() == nil })
		if got, err := ID.S(n).Do(limited(t), w.client); err != nil || got != n {
			t.Fatalf("after the outage: got %v, %v, want %d", got, err, n)
		}
		if got := warnings.Load(); got != int64(n+1) {
			t.Errorf("after %d outages: got %d warnings", n+1, got)
		}
	}
}

// Tasks that a slow task delays are left to other workers, also if earlier tasks were so short that a slot took many
// together.
func TestSlotTakesNoMoreThanItCanStart(t *testing.T) {
	t.Parallel()
	redistest.Both(t, func(t *testing.T, rdb redis.UniversalClient) {
		c := tasks.NewClient(rdb)
		t.Cleanup(func() { _ = c.Close() })
		gate, open := make(chan struct{}), make(chan struct{})
		close(open)
		stop := startGated(t, c, gate, tasks.WorkerConfig{Name: "slow", Concurrency: 2})
		short, err := tasks.Each(slices.Repeat([]int{-1}, 500), gated).Send(t.Context(), c)
		testutil.Ok(t, err)
		if _, err := short.Wait(limited(t)); err != nil {
			t.Fatal(err)
		}
		run, err := tasks.Each(ints(20), gated).Send(t.Context(), c)
		testutil.Ok(t, err)
		testutil.Eventually(t, "two nodes are in hand and the others are ready", func() bool {
			as, err := c.Inspect().Active(t.Context())
			qs, err2 := c.Inspect().Queues(t.Context())
			return err == nil && err2 == nil && len(as) == 2 && len(qs) == 1 && qs[0].Pending == 18
		})
		startGated(t, c, open, tasks.WorkerConfig{Name: "free"})
		testutil.Eventually(t, "the other worker does the rest", func() bool {
			p, err := run.Progress(t.Context())
			return err == nil && p.Done == 18
		})
		close(gate)
		if got, err := run.Wait(limited(t)); err != nil || !slices.Equal(got, ints(20)) {
			t.Fatalf("got %v, %v", got, err)
		}
		stop()
		testutil.Eventually(t, "asynq deletes completed tasks", func() bool {
			return rdb.LLen(t.Context(), "asynq:{default}:active").Val() == 0 && rdb.ZCard(t.Context(), "asynq:{default}:lease").Val() == 0
		})
	})
}

// Nodes that many slots make ready together run immediately: none is left to the sweep for ready nodes, which fails here.
func TestBodyOfAChordFollowsAtOnce(t *testing.T) {
	t.Parallel()
	redistest.Both(t, func(t *testing.T, rdb redis.UniversalClient) {
		w := newWorld(t, rdb, func(cfg *tasks.WorkerConfig) { cfg.Concurrency = 16 })
		f := redistest.NewFault(redistest.Refused, redistest.EveryCall)
		f.Match = func(cmd redis.Cmder) bool {
			kind := kindOf(cmd)
			return kind == "look" || kind == "due" || kind == "bump"
		}
		rdb.AddHook(f)
		f.Arm()
		for range 20 {
			if got, err := send(t, w, tasks.Chord(tasks.Each(ints(32), ID), Sum)); err != nil || got != 496 {
				t.Errorf("got %v, %v, want %v", got, err, 496)
			}
		}
	})
}

var gated = tasks.New[int, int]("ahead.gated")

// startGated starts a worker whose tasks wait for gate, except for tasks with a negative input. It stops with the
// test, or when the returned function is called.
func startGated(t *testing.T, c *tasks.Client, gate <-chan struct{}, cfg tasks.WorkerConfig) func() {
	t.Helper()
	m := tasks.NewMux()
	tasks.Handle(m, gated, func(_ context.Context, i int) (int, error) {
		if i >= 0 {
			<-gate
		}
		return i, nil
	})
	worker, err := tasks.NewWorker(c, m, cfg)
	testutil.Ok(t, err)
	return testutil.Background(t, worker.Run)
}
