package tasks_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"muster/internal/redistest"
	"muster/internal/testutil"
	"muster/tasks"
)

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
			if _, err := sender.EnqueueContext(t.Context(), asynq.NewTask(name, []byte("x")), asynq.TaskID(name),
				asynq.MaxRetry(5), asynq.Retention(time.Hour)); err != nil {
				t.Fatal(err)
			}
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

// inWorldsOfAsynq runs a test in a separate world on each kind of Redis, with a view of asynq's queues.
func inWorldsOfAsynq(t *testing.T, run func(t *testing.T, w *world, in *asynq.Inspector)) {
	redistest.Every(t, func(t *testing.T, rdb redis.UniversalClient) {
		run(t, newWorld(t, rdb), asynq.NewInspectorFromRedisClient(rdb))
	})
}

// Tasks of asynq's own clients count beside ready nodes.
func TestQueuesCountTasksOfAsynq(t *testing.T) {
	t.Parallel()
	inWorldsOfAsynq(t, func(t *testing.T, w *world, in *asynq.Inspector) {
		rest(t, w, "default")
		sent(t, w, ID.S(1))
		enqueue := asynq.NewClientFromRedisClient(w.client.Redis())
		for _, id := range []string{"a", "{0}:default", "{0}:other:1"} {
			if _, err := enqueue.Enqueue(asynq.NewTask("plain", nil), asynq.TaskID(id)); err != nil {
				t.Fatal(err)
			}
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
