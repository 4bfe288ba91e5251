package tasks_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"muster/internal/redistest"
	"muster/internal/testutil"
	"muster/tasks"
)

// The clock of Redis jumps by a day, forward and back: workflows end, and no live worker is treated as dead.
func TestJumpOfTheClockOfRedisDoesNoHarm(t *testing.T) {
	t.Parallel()
	const day = 24 * time.Hour
	rdb, jump := redistest.Clock(t)
	worlds := make([]*world, 3)
	runs := make([]*tasks.Run[int], len(worlds))
	for i := range worlds {
		queue := fmt.Sprint("q", i)
		worlds[i] = newWorld(t, rdb, func(c *tasks.WorkerConfig) { c.Name = queue; c.Queues = map[string]int{queue: 1, "default": 1} })
		runs[i] = sent(t, worlds[i], tasks.Chain(Hold.S("jump", tasks.Queue(queue)), Inc))
		testutil.Eventually(t, "it runs", func() bool { return len(worlds[i].noted("at jump")) == 1 })
	}
	beats := func() (out [3]float64) {
		for i, w := range worlds {
			out[i] = rdb.ZScore(t.Context(), "muster:workers", w.worker.Name()).Val()
		}
		return out
	}
	beaten := func(times int) {
		for range times {
			before := beats()
			testutil.Eventually(t, "all beat", func() bool {
				now := beats()
				return now[0] != before[0] && now[1] != before[1] && now[2] != before[2]
			})
		}
	}
	for _, d := range []time.Duration{day, -day, -day, day} {
		jump(d)
		beaten(3)
		if got, err := send(t, worlds[0], tasks.Chord(tasks.Each(ints(50), ID), Sum)); err != nil || got != 1225 {
			t.Errorf("after a jump of %v: got %v, %v, want 1225", d, got, err)
		}
		if got, err := send(t, worlds[1], tasks.Chain(Range.S(2, tasks.In(50*time.Millisecond)), Sum)); err != nil || got != 1 {
			t.Errorf("after a jump of %v: a delayed task came to %v, %v, want 1", d, got, err)
		}
	}
	for i, w := range worlds {
		if n := w.ran(runs[i].ID() + ".0"); n != 1 {
			t.Errorf("the task of worker %d ran %d times, want once", i, n)
		}
		if n := w.worker.Stats().Recovered; n != 0 {
			t.Errorf("worker %d took over %d nodes, want none", i, n)
		}
		w.open("jump")
		wantValue(t, runs[i], 2)
	}
}

// A handler that has lost its task to another worker stores no step: it gets an error, and its context ends.
func TestStepOfALostTaskIsRefused(t *testing.T) {
	t.Parallel()
	redistest.Both(t, func(t *testing.T, rdb redis.UniversalClient) {
		client := newClient(t, rdb)
		held, lost, refused := make(chan string), make(chan struct{}), make(chan error, 1)
		var calls atomic.Int32
		task := tasks.New[int, []int32]("step.lost")
		mux := tasks.NewMux()
		tasks.Handle(mux, task, func(ctx context.Context, _ int) (out []int32, err error) {
			n := calls.Add(1)
			if err := tasks.Emit(ctx, n); err != nil {
				return nil, err
			}
			for _, name := range []string{"a", "b"} {
				v, err := tasks.Step(ctx, name, func(context.Context) (int32, error) { return n, nil })
				if err != nil {
					<-ctx.Done()
					refused <- errors.Join(err, context.Cause(ctx))
					return nil, err
				}
				if out = append(out, v); n == 1 && name == "a" {
					held <- tasks.InfoFrom(ctx).Worker
					<-lost
				}
			}
			return out, nil
		})
		runWorker(t, client, mux, tasks.WorkerConfig{Name: "one"})
		run := started(t, client, task.S(1))
		testutil.Ok(t, client.ExpireLeases(t.Context(), <-held))
		if got, err := run.Wait(limited(t)); err != nil || !slices.Equal(got, []int32{1, 2}) {
			t.Errorf("got %v, %v, want the step of the first run and that of the second", got, err)
		}
		close(lost)
		if err := <-refused; err == nil {
			t.Error("got no error of the lost handler")
		}
		if d, err := run.Node(t.Context(), "0"); err != nil || len(d.Steps) != 2 || string(d.Steps[1].Value) != "2" {
			t.Errorf("got %+v, %v, want two steps", d.Steps, err)
		}
		testutil.Ok(t, run.WaitAll(t.Context()))
		if ttl := rdb.PTTL(t.Context(), flowKey(t, rdb, run.ID())+":out").Val(); ttl <= 0 {
			t.Errorf("output: got the time to live %s, want one", ttl)
		}
	})
}
