package tasks_test

import (
	"errors"
	"testing"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"muster/internal/testutil"
	"muster/tasks"
	"muster/tasks/redistest"
)

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
