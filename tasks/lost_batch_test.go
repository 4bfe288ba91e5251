package tasks_test

import (
	"testing"

	"github.com/redis/go-redis/v9"

	"muster/internal/redistest"
	"muster/internal/testutil"
	"muster/tasks"
)

// A worker can die with a batch that it did not begin. Its nodes run again when its leases are expired, as those do
// that it had begun.
func TestNodesTakenAndNotBegunRunElsewhere(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, rdb redis.UniversalClient) {
		c := tasks.NewClient(rdb)
		t.Cleanup(func() { _ = c.Close() })
		run, err := tasks.Chord(tasks.Group(ID.S(1), ID.S(2), ID.S(3)), Sum).Send(t.Context(), c)
		if err != nil {
			t.Fatal(err)
		}
		if took := takeAs(t, rdb, "dead"); took != 1 {
			t.Fatalf("took %d elements, want 1", took)
		}
		w := newWorld(t, rdb)
		if err := c.ExpireLeases(t.Context(), "dead"); err != nil {
			t.Fatal(err)
		}
		if got, err := run.Wait(limited(t)); err != nil || got != 6 {
			t.Fatalf("got %v, %v, want 6", got, err)
		}
		ended(t, w, run.ID())
		for _, n := range nodes(t, w, run.ID())[:3] {
			if got := w.ran(run.ID() + "." + n.ID); got != 1 {
				t.Errorf("node %s ran %d times, want 1", n.ID, got)
			}
		}
	})
}

// A worker that is in no list of workers, as after a roll-back of Redis, and has batches is found dead by the others.
func TestBatchOfAnUnlistedWorkerIsFound(t *testing.T) {
	t.Parallel()
	redistest.Both(t, func(t *testing.T, rdb redis.UniversalClient) {
		c := tasks.NewClient(rdb)
		t.Cleanup(func() { _ = c.Close() })
		run, err := tasks.Chain(ID.S(1), Inc).Send(t.Context(), c)
		if err != nil {
			t.Fatal(err)
		}
		takeAs(t, rdb, "dead-worker")
		newWorld(t, rdb)
		if got, err := run.Wait(limited(t)); err != nil || got != 2 {
			t.Fatalf("got %v, %v, want 2", got, err)
		}
	})
}

// A Redis that lost its last writes can remember that a worker has a batch and not that it ended it: the worker does
// not know the batch any more, gives it back, and the nodes run again.
func TestBatchWhoseEndRedisLostRunsAgain(t *testing.T) {
	t.Parallel()
	rdb := redistest.Server(t).Client() // miniredis dumps no hashes
	w := newWorld(t, rdb)
	run := sent(t, w, tasks.Chain(Hold.S("lost"), Inc))
	testutil.Eventually(t, "it runs", func() bool { return len(w.noted("at lost")) == 1 })
	rollBack := snapshot(t, rdb)
	w.open("lost")
	if got, err := run.Wait(limited(t)); err != nil || got != 2 {
		t.Fatalf("got %v, %v, want 2", got, err)
	}
	ended(t, w, run.ID())
	rollBack()
	if p, err := run.Progress(t.Context()); err != nil || p.Ended {
		t.Fatalf("rolled back: got %+v, %v, want one that has not ended", p, err)
	}
	ended(t, w, run.ID())
	if got, err := tasks.Attach[int](w.client, run.ID()).Wait(limited(t)); err != nil || got != 2 {
		t.Errorf("after the roll-back: got %v, %v, want 2", got, err)
	}
	for _, node := range []string{".0", ".1"} {
		if got := w.ran(run.ID() + node); got != 2 {
			t.Errorf("node %s ran %d times, want 2", node, got)
		}
	}
}

// Redis can also lose the lease of a batch: the worker's results do not count, and the nodes run again.
func TestBatchWhoseLeaseRedisLostRunsAgain(t *testing.T) {
	t.Parallel()
	rdb := redistest.Server(t).Client()
	w := newWorld(t, rdb)
	resume := pause(t, w)
	run := sent(t, w, tasks.Chain(Hold.S("lost"), Inc))
	rollBack := snapshot(t, rdb)
	resume()
	testutil.Eventually(t, "it runs", func() bool { return len(w.noted("at lost")) == 1 })
	rollBack()
	testutil.Eventually(t, "it runs once more", func() bool { return len(w.noted("at lost")) == 2 })
	w.open("lost")
	if got, err := run.Wait(limited(t)); err != nil || got != 2 {
		t.Fatalf("got %v, %v, want 2", got, err)
	}
	ended(t, w, run.ID())
	if got := w.ran(run.ID() + ".1"); got != 1 {
		t.Errorf("its successor ran %d times, want 1", got)
	}
}
