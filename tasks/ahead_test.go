package tasks_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"muster/tasks"
	"muster/tasks/facttest"
	"muster/tasks/redistest"
)

// A worker can believe that it is at nothing while Redis says that it runs a node: the answer that told
// it got lost. It finds out by itself.
func TestNodeAstray(t *testing.T) {
	t.Parallel()
	redistest.Both(t, func(t *testing.T, rdb redis.UniversalClient) {
		w := newWorld(t, rdb)
		if err := rdb.SAdd(t.Context(), "asynq:queues", "default").Err(); err != nil {
			t.Fatal(err)
		}
		if err := w.client.PauseQueue(t.Context(), "default"); err != nil {
			t.Fatal(err)
		}
		run, err := ID.S(7).Send(t.Context(), w.client)
		if err != nil {
			t.Fatal(err)
		}
		flow, name := "muster:{s00}:w:"+run.ID(), w.worker.Name()
		rdb.HSet(t.Context(), flow, "0", "R|0|0|0|1|"+name)
		rdb.HSet(t.Context(), "muster:{s00}:running", run.ID()+"/0", name)
		rdb.ZRem(t.Context(), "muster:{s00}:agenda", run.ID()+"/0")
		if err := asynq.NewInspectorFromRedisClient(rdb).DeleteTask("default", run.ID()+".0.0"); err != nil {
			t.Fatal(err)
		}
		if err := w.client.ResumeQueue(t.Context(), "default"); err != nil {
			t.Fatal(err)
		}
		if got, err := run.Wait(t.Context()); err != nil || got != 7 {
			t.Fatalf("got %v, %v", got, err)
		}
	})
}

// A worker takes only what its free slots can start: what a slow task has no slot for is another's.
func TestTakesNoMoreThanItCanStart(t *testing.T) {
	t.Parallel()
	redistest.Both(t, func(t *testing.T, rdb redis.UniversalClient) {
		c := tasks.NewClient(rdb)
		t.Cleanup(func() { _ = c.Close() })
		held := make([]*tasks.AsyncResult[int], 6)
		for i := range held {
			run, err := gated.S(i).Send(t.Context(), c)
			if err != nil {
				t.Fatal(err)
			}
			held[i] = run
		}
		gate := make(chan struct{})
		stop := startGated(t, c, gate, tasks.WorkerConfig{Name: "slow", Concurrency: 2})
		facttest.Eventually(t, "two tasks run", func() bool {
			as, err := c.Active(t.Context())
			return err == nil && len(as) == 2
		})
		if n := rdb.LLen(t.Context(), "asynq:{default}:pending").Val(); n != 4 {
			t.Errorf("%d tasks wait in the queue, want 4", n)
		}
		open := make(chan struct{})
		close(open)
		startGated(t, c, open, tasks.WorkerConfig{Name: "free"})
		facttest.Eventually(t, "the other worker does the rest", func() bool {
			done := 0
			for _, run := range held {
				if s, err := run.Status(t.Context()); err == nil && s == tasks.Success {
					done++
				}
			}
			return done == 4
		})
		close(gate)
		for _, run := range held {
			if _, err := run.Wait(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		stop()
		facttest.Eventually(t, "asynq forgets what is done", func() bool {
			return rdb.LLen(t.Context(), "asynq:{default}:active").Val() == 0 && rdb.ZCard(t.Context(), "asynq:{default}:lease").Val() == 0
		})
	})
}

// What many slots make ready together runs at once: none of them leaves it to the agenda, which someone
// looks through only every few seconds.
func TestBodyFollowsAtOnce(t *testing.T) {
	t.Parallel()
	redistest.Both(t, func(t *testing.T, rdb redis.UniversalClient) {
		w := newWorld(t, rdb, func(cfg *tasks.WorkerConfig) { cfg.Concurrency = 16 })
		late := 0
		for range 20 {
			began := time.Now()
			if got, err := send(t, w, tasks.Each(ints(32), ID)); err != nil || len(got) != 32 {
				t.Fatalf("got %v, %v", got, err)
			}
			alone := time.Since(began) // what the machine takes for it
			began = time.Now()
			if got, err := send(t, w, tasks.Chord(tasks.Each(ints(32), ID), Sum)); err != nil || got != 496 {
				t.Fatalf("got %v, %v", got, err)
			}
			if time.Since(began) > 1900*time.Millisecond+2*alone {
				late++
			}
		}
		if late > 5 {
			t.Errorf("%d of 20 chords waited for the agenda", late)
		}
	})
}

var gated = tasks.New[int, int]("ahead.gated")

// startGated starts a worker whose tasks wait for gate. It stops with the test, or when told.
func startGated(t *testing.T, c *tasks.Client, gate <-chan struct{}, cfg tasks.WorkerConfig) func() {
	t.Helper()
	m := tasks.NewMux()
	tasks.Handle(m, gated, func(_ context.Context, i int) (int, error) {
		<-gate
		return i, nil
	})
	worker, err := tasks.NewWorker(c, m, cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- worker.Run(ctx) }()
	stop := sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("worker: %v", err)
		}
	})
	t.Cleanup(stop)
	return stop
}
