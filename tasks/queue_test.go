package tasks_test

import (
	"slices"
	"testing"

	"github.com/hibiken/asynq"

	"muster/internal/testutil"
	"muster/tasks"
)

func TestWorkersAndQueues(t *testing.T) {
	t.Parallel()
	runStories(t, fleetStories)
}

// fleetStories check more than one value.
var fleetStories = []story{
	{"workers, queues and concurrency", func(t *testing.T, w *world) {
		ws, err := w.client.Workers(t.Context())
		if err != nil || len(ws) != 1 || ws[0].Name != w.worker.Name() || ws[0].Concurrency != 8 || !slices.Contains(ws[0].Tasks, "t.add") {
			t.Fatalf("workers %+v, %v", ws, err)
		}
		if _, err := send(t, w, ID.S(1)); err != nil {
			t.Fatal(err)
		}
		rest(t, w, "default")
		run, err := ID.S(1).Send(t.Context(), w.client)
		if err != nil {
			t.Fatal(err)
		}
		qs, err := w.client.Queues(t.Context())
		if err != nil || len(qs) != 1 || !qs[0].Paused || qs[0].Pending != 1 {
			t.Fatalf("queues %+v, %v", qs, err)
		}
		if err := w.client.ResumeQueue(t.Context(), "default"); err != nil {
			t.Fatal(err)
		}
		if _, err := run.Wait(limited(t)); err != nil {
			t.Fatal(err)
		}
		if err := w.client.SetConcurrency(t.Context(), w.worker.Name(), 2); err != nil {
			t.Fatal(err)
		}
		testutil.Eventually(t, "concurrency shows", func() bool {
			ws, err := w.client.Workers(t.Context())
			return err == nil && len(ws) == 1 && ws[0].Concurrency == 2
		})
		if _, err := send(t, w, tasks.Each(ints(12), tasks.New[int, int]("t.count"))); err != nil {
			t.Fatal(err)
		}
		if most := slices.Max(w.noted("count")); most > 2 {
			t.Fatalf("%d ran at once, want 2 at most", most)
		}
	}},
}

// Tasks of asynq's own clients count beside ready nodes.
func TestQueuesCountTasksOfAsynq(t *testing.T) {
	t.Parallel()
	inWorldsOfAsynq(t, func(t *testing.T, w *world, in *asynq.Inspector) {
		rest(t, w, "default")
		if _, err := ID.S(1).Send(t.Context(), w.client); err != nil {
			t.Fatal(err)
		}
		enqueue := asynq.NewClientFromRedisClient(w.client.Redis())
		for _, id := range []string{"a", "{0}:default", "{0}:other:1"} {
			if _, err := enqueue.Enqueue(asynq.NewTask("plain", nil), asynq.TaskID(id)); err != nil {
				t.Fatal(err)
			}
		}
		if err := in.ArchiveTask("default", "a"); err != nil {
			t.Fatal(err)
		}
		qs, err := w.client.Queues(t.Context())
		if err != nil || len(qs) != 1 || qs[0].Pending != 3 || qs[0].Active != 0 || qs[0].Archived != 1 || !qs[0].Paused || qs[0].Latency <= 0 {
			t.Errorf("got %+v, %v, want a paused queue with 3 pending and 1 archived", qs, err)
		}
	})
}
