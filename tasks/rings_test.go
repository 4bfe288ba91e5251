package tasks_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hibiken/asynq"
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
		c := newClient(t, rdb)
		gate, open := make(chan struct{}), make(chan struct{})
		close(open)
		slow := startGated(t, c, gate, tasks.WorkerConfig{Name: "slow", Concurrency: 2})
		short := testutil.Must(tasks.Each(slices.Repeat([]int{-1}, 500), gated).Send(t.Context(), c))(t)
		testutil.Must(short.Wait(limited(t)))(t)
		run := testutil.Must(tasks.Each(ints(20), gated).Send(t.Context(), c))(t)
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
		testutil.Ok(t, slow.Stop())
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

// startGated starts a worker whose tasks wait for gate, except for tasks with a negative input.
func startGated(t *testing.T, c *tasks.Client, gate <-chan struct{}, cfg tasks.WorkerConfig) *tasks.Worker {
	t.Helper()
	m := tasks.NewMux()
	tasks.Handle(m, gated, func(_ context.Context, i int) (int, error) {
		if i >= 0 {
			<-gate
		}
		return i, nil
	})
	return runWorker(t, c, m, cfg)
}

// Tasks of asynq's own client and workflows go through one worker and one queue.
func TestPlainTasksBesideWorkflows(t *testing.T) {
	t.Parallel()
	redistest.Both(t, func(t *testing.T, rdb redis.UniversalClient) {
		client := newClient(t, rdb)
		ours := tasks.New[int, int]("ours")
		mux := tasks.NewMux()
		tasks.Handle(mux, ours, func(_ context.Context, n int) (int, error) { return n + 1, nil })
		plain := asynq.NewServeMux()
		plain.HandleFunc("mail:", func(_ context.Context, t *asynq.Task) error {
			_, err := fmt.Fprintf(t.ResultWriter(), "sent to %s", t.Payload())
			return err
		})
		plain.HandleFunc("bad:", func(context.Context, *asynq.Task) error { return errors.New("no such host") })
		plain.HandleFunc("never:", func(context.Context, *asynq.Task) error { return fmt.Errorf("closed: %w", asynq.SkipRetry) })
		plain.HandleFunc("panic:", func(context.Context, *asynq.Task) error { panic("oh") })
		plain.HandleFunc("nil:", func(context.Context, *asynq.Task) error { var f *tasks.Failure; return f })
		runWorker(t, client, mux, tasks.WorkerConfig{Asynq: plain})

		sender := asynq.NewClientFromRedisClient(rdb)
		for _, name := range []string{"mail:ann", "bad:bob", "never:cid", "panic:dan", "nil:fay", "unknown:eve"} {
			testutil.Must(sender.EnqueueContext(t.Context(), asynq.NewTask(name, []byte("x")), asynq.TaskID(name),
				asynq.MaxRetry(5), asynq.Retention(time.Hour)))(t)
		}
		run := started(t, client, tasks.Chain(ours.S(1), ours))
		if out, err := run.Wait(t.Context()); err != nil || out != 3 {
			t.Errorf("workflow: got %d, %v, want 3", out, err)
		}
		inspector := asynq.NewInspectorFromRedisClient(rdb)
		for name, want := range map[string]string{
			"mail:ann":    "completed 0 sent to x ",
			"bad:bob":     "retry 1  no such host",
			"never:cid":   "archived 0  closed: skip retry for the task",
			"panic:dan":   "retry 1  panic",
			"nil:fay":     "retry 1  panic",
			"unknown:eve": "retry 1  handler not found",
		} {
			var got string
			testutil.Eventually(t, name+" is over", func() bool {
				i, err := inspector.GetTaskInfo("default", name)
				if err != nil {
					return false
				}
				got = fmt.Sprintf("%s %d %s %s", i.State, i.Retried, i.Result, i.LastErr)
				return i.State != asynq.TaskStatePending && i.State != asynq.TaskStateActive
			})
			if len(got) < len(want) || got[:len(want)] != want {
				t.Errorf("%s: %q, expected %q", name, got, want)
			}
		}
	})
}

// An operator deletes a whole queue with its tasks: ready nodes run, and the queue exists for operators as before.
func TestDeletedQueueComesBack(t *testing.T) {
	t.Parallel()
	inWorlds(t, func(t *testing.T, w *world) {
		in := asynq.NewInspectorFromRedisClient(w.client.Redis())
		testutil.Eventually(t, "a worker has registered the queue with asynq", func() bool {
			_, err := in.GetQueueInfo("default")
			return err == nil
		})
		resume := pause(t, w)
		run := sent(t, w, tasks.Chord(tasks.Each(ints(10), ID), Sum))
		testutil.Ok(t, in.DeleteQueue("default", true))
		resume()
		wantValue(t, run, 45)
		ended(t, w, run.ID())
		testutil.Eventually(t, "operators see the queue", func() bool { // a worker adds it
			_, err := in.GetQueueInfo("default")
			return err == nil
		})
		if _, err := in.GetTaskInfo("default", "none"); !errors.Is(err, asynq.ErrTaskNotFound) {
			t.Errorf("looked for a task: got %v, want %v", err, asynq.ErrTaskNotFound)
		}
	})
}

// An operator pauses a queue with a tool of asynq: after some seconds nothing begins until it is resumed.
func TestQueueIsPausedAsInAsynq(t *testing.T) {
	t.Parallel()
	inWorlds(t, func(t *testing.T, w *world) {
		rdb := w.client.Redis()
		in := asynq.NewInspectorFromRedisClient(rdb)
		wantValue(t, sent(t, w, ID.S(1)), 1)
		testutil.Ok(t, in.PauseQueue("default"))
		testutil.Eventually(t, "workers have noticed the pause", func() bool {
			for _, shard := range shards(t, rdb) {
				if rdb.HGet(t.Context(), shard+"queue:default", "paused").Val() == "" {
					return false
				}
			}
			return true
		})
		run := sent(t, w, tasks.Chain(ID.S(1), Inc))
		elsewhere := sent(t, w, ID.S(3, tasks.Queue("other")))
		wantValue(t, elsewhere, 3)
		if got := w.ran(run.ID() + ".0"); got != 0 {
			t.Errorf("a node of the paused queue ran %d times, want 0", got)
		}
		testutil.Ok(t, in.UnpauseQueue("default"))
		wantValue(t, run, 2)
	}, func(c *tasks.WorkerConfig) { c.Queues = map[string]int{"default": 1, "other": 1} })
}

// Tasks of asynq's own clients count beside ready nodes.
func TestQueuesCountTasksOfAsynq(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, rdb redis.UniversalClient) {
		w, in := newWorld(t, rdb), asynq.NewInspectorFromRedisClient(rdb)
		rest(t, w, "default")
		sent(t, w, ID.S(1))
		enqueue := asynq.NewClientFromRedisClient(w.client.Redis())
		for _, id := range []string{"a", "{0}:default", "{0}:other:1"} {
			testutil.Must(enqueue.Enqueue(asynq.NewTask("plain", nil), asynq.TaskID(id)))(t)
		}
		testutil.Ok(t, in.ArchiveTask("default", "a"))
		qs, err := w.client.Inspect().Queues(t.Context())
		if err != nil || len(qs) != 1 || qs[0].Pending != 3 || qs[0].Active != 0 || qs[0].Archived != 1 || !qs[0].Paused || qs[0].Latency <= 0 {
			t.Errorf("got %+v, %v, want a paused queue with 3 pending and 1 archived", qs, err)
		}
	})
}

// QueueLimits bounds how many tasks of a queue run at once, and the worker's other queues continue.
func TestQueueRunsNoMoreThanItsLimit(t *testing.T) {
	t.Parallel()
	inWorlds(t, func(t *testing.T, w *world) {
		held := sent(t, w, tasks.Each(slices.Repeat([]string{"limited"}, 5), Hold, tasks.Queue("few")))
		testutil.Eventually(t, "two run", func() bool { return len(w.noted("at limited")) == 2 })
		wantValue(t, sent(t, w, tasks.Chord(tasks.Each(ints(20), ID), Sum)), 190)
		as, err := w.client.Inspect().Active(t.Context())
		if n := len(w.noted("at limited")); n != 2 || err != nil || len(as) != 2 {
			t.Fatalf("%d of the limited queue have begun, %d run, %v", n, len(as), err)
		}
		w.open("limited")
		if got, err := held.Wait(limited(t)); err != nil || len(got) != 5 {
			t.Fatalf("got %v, %v", got, err)
		}
	}, func(c *tasks.WorkerConfig) {
		c.Queues = map[string]int{"default": 1, "few": 1}
		c.QueueLimits = map[string]int{"few": 2}
	})
	if _, err := tasks.NewWorker(tasks.NewClient(redistest.Mini(t)), tasks.NewMux(),
		tasks.WorkerConfig{QueueLimits: map[string]int{"other": 1}}); err == nil || !strings.Contains(err.Error(), "QueueLimits") {
		t.Errorf("a limit of a queue that is not taken from: %v", err)
	}
}
