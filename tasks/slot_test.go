package tasks_test

import (
	"context"
	"slices"
	"testing"

	"github.com/redis/go-redis/v9"

	"muster/internal/redistest"
	"muster/internal/testutil"
	"muster/tasks"
)

// A worker can be unaware of a batch that Redis has given it, because the reply was lost. It detects that
// automatically.
func TestBatchWhoseReplyWasLostIsReturned(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, rdb redis.UniversalClient) {
		w := newWorld(t, rdb)
		resume := pause(t, w)
		run := sent(t, w, ID.S(7))
		takeAs(t, rdb, w.worker.Name())
		resume()
		if got, err := run.Wait(limited(t)); err != nil || got != 7 {
			t.Fatalf("got %v, %v, want 7", got, err)
		}
	})
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
		if err != nil {
			t.Fatal(err)
		}
		if _, err := short.Wait(limited(t)); err != nil {
			t.Fatal(err)
		}
		run, err := tasks.Each(ints(20), gated).Send(t.Context(), c)
		if err != nil {
			t.Fatal(err)
		}
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
				t.Fatalf("got %v, %v", got, err)
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
	if err != nil {
		t.Fatal(err)
	}
	return testutil.Background(t, worker.Run)
}
