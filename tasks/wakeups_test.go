package tasks_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/redis/go-redis/v9"

	"muster/internal/testutil"
	"muster/tasks"
	"muster/tasks/redistest"
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
	var takes []*redistest.Fault
	var last *world
	for range 4 {
		rdb := srv.Client()
		takes = append(takes, calls(rdb, "take"))
		last = newWorld(t, rdb)
	}
	for n := 1; n <= 20; n++ {
		if got, err := send(t, last, ID.S(n)); err != nil || got != n {
			t.Fatalf("got %v, %v, want %d", got, err, n)
		}
	}
	sum, most := 0, 0
	for _, f := range takes {
		sum += f.Calls()
		most = max(most, f.Calls())
	}
	if sum > 24 || most > 12 { // a slot that ends can meet the next task
		t.Errorf("%d takes for 20 tasks, %d by one of 4 workers; want one for each, and workers by turns", sum, most)
	}
}

// Tasks run although their wake-up was lost, or came too often.
func TestWakeupsThatAreWrong(t *testing.T) {
	t.Parallel()
	redistest.Both(t, func(t *testing.T, rdb redis.UniversalClient) {
		const list = "muster:{0}:wakeup:default"
		sender := tasks.NewClient(rdb)
		t.Cleanup(func() { _ = sender.Close() })
		run, err := tasks.Chain(ID.S(1), Inc).Send(t.Context(), sender)
		if err != nil {
			t.Fatal(err)
		}
		if n := rdb.Del(t.Context(), list).Val(); n != 1 {
			t.Fatal("no wake-up was sent")
		}
		w := newWorld(t, rdb)
		if got, err := run.Wait(limited(t)); err != nil || got != 2 {
			t.Fatalf("without its wake-up: got %v, %v, want 2", got, err)
		}
		for range 1000 {
			rdb.RPush(t.Context(), list, "0")
		}
		rdb.RPush(t.Context(), list, "", "x y")
		if got, err := send(t, w, tasks.Chord(tasks.Each(ints(30), ID), Sum)); err != nil || got != 435 {
			t.Errorf("with 1,000 wake-ups: got %v, %v, want 435", got, err)
		}
		testutil.Eventually(t, "all wake-ups are taken", func() bool { return rdb.Exists(t.Context(), list).Val() == 0 })
		for _, n := range nodes(t, w, run.ID()) {
			if times := w.ran(run.ID() + "." + n.ID); times != 1 {
				t.Errorf("%s ran %d times, want once", n.ID, times)
			}
		}
	})
}

// A worker that freezes while it waits takes one wake-up with it. Another worker finds the task.
func TestWorkerFreezesWhileItWaits(t *testing.T) {
	t.Parallel()
	url := redistest.URL(t)
	f := redistest.NewFault(redistest.Frozen, 1)
	w := newWorld(t, f.Client(t, url))
	other := newWorld(t, connect(t, url).Redis())
	f.Arm()
	t.Cleanup(f.Release)
	for n := range 3 {
		run := sent(t, other, ID.S(n))
		if got, err := run.Wait(limited(t)); err != nil || got != n {
			t.Fatalf("got %v, %v, want %d", got, err, n)
		}
		if times := w.ran(run.ID() + ".0"); times != 0 {
			t.Errorf("the frozen worker ran it %d times, want 0", times)
		}
	}
}

// A worker with a queue that may use one slot takes the next task of the queue when that slot is free, also while it waits
// for other queues.
func TestWakeupOfAQueueWithALimit(t *testing.T) {
	t.Parallel()
	redistest.Both(t, func(t *testing.T, rdb redis.UniversalClient) {
		waits, nudges := calls(rdb, "blpop"), redistest.NewFault(redistest.Slow, 0)
		nudges.Match = func(cmd redis.Cmder) bool {
			return strings.Contains(fmt.Sprint(cmd.Args()), ":nudge:") && cmd.Name() != "blpop"
		}
		rdb.AddHook(nudges)
		nudges.Arm()
		w := newWorld(t, rdb, func(c *tasks.WorkerConfig) {
			c.Queues, c.QueueLimits = map[string]int{"default": 1, "one": 1}, map[string]int{"one": 1}
		})
		first := sent(t, w, Hold.S("limit", tasks.Queue("one")))
		testutil.Eventually(t, "it runs", func() bool { return len(w.noted("at limit")) == 1 })
		if got, err := send(t, w, ID.S(3)); err != nil || got != 3 {
			t.Fatalf("another queue: got %v, %v, want 3", got, err)
		}
		second := sent(t, w, ID.S(2, tasks.Queue("one")))
		testutil.Eventually(t, "it waits for other queues", func() bool { return waits.Calls() >= 3 }) // after two wake-ups
		w.open("limit")
		if got, err := second.Wait(limited(t)); err != nil || got != 2 {
			t.Fatalf("got %v, %v, want 2", got, err)
		}
		testutil.Eventually(t, "the free slot ends the wait for other queues", func() bool { return nudges.Calls() > 0 })
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
	waits := calls(rdb, "blpop")
	var warnings failedWaits
	w := newWorld(t, rdb, func(c *tasks.WorkerConfig) { c.Logger = slog.New(slog.NewTextHandler(&warnings, nil)) })
	for n := range 2 {
		srv.Kill()
		before := waits.Calls()
		testutil.Eventually(t, "it has waited in vain", func() bool { return waits.Calls() > before+4 })
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
