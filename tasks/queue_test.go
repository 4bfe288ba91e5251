package tasks_test

import (
	"testing"

	"github.com/hibiken/asynq"

	"muster/internal/testutil"
)

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
		qs, err := w.client.Queues(t.Context())
		if err != nil || len(qs) != 1 || qs[0].Pending != 3 || qs[0].Active != 0 || qs[0].Archived != 1 || !qs[0].Paused || qs[0].Latency <= 0 {
			t.Errorf("got %+v, %v, want a paused queue with 3 pending and 1 archived", qs, err)
		}
	})
}
