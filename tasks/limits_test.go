package tasks_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"muster/internal/testutil"
	"muster/tasks"
	"muster/tasks/redistest"
)

// QueueLimits bounds how many tasks of a queue run at once, and the worker's other queues continue.
func TestQueueRunsNoMoreThanItsLimit(t *testing.T) {
	t.Parallel()
	inWorlds(t, func(t *testing.T, w *world) {
		held := sent(t, w, tasks.Each(slices.Repeat([]string{"limited"}, 5), Hold, tasks.Queue("few")))
		testutil.Eventually(t, "two run", func() bool { return len(w.noted("at limited")) == 2 })
		wantValue(t, sent(t, w, tasks.Chord(tasks.Each(ints(20), ID), Sum)), 190)
		as, err := w.client.Active(t.Context())
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

// At most so many starts of a task in any span of time, over all workers.
func TestTaskStartsNoMoreOftenThanItsRate(t *testing.T) {
	t.Parallel()
	inWorlds(t, func(t *testing.T, w *world) {
		const per = 200 * time.Millisecond
		run := sent(t, w, tasks.Each(ints(6), tasks.New[int, int]("t.when", tasks.RateLimit(2, per))))
		if _, err := run.Wait(limited(t)); err != nil {
			t.Fatal(err)
		}
		ran := w.noted("when")
		slices.Sort(ran)
		if len(ran) != 6 || ran[5]-ran[0] < int(per.Milliseconds()) {
			t.Fatalf("six starts at %v, of which two may be in %v", ran, per)
		}
	})
}
