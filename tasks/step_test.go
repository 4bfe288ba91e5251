package tasks_test

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/redis/go-redis/v9"

	"muster/internal/redistest"
	"muster/internal/testutil"
	"muster/tasks"
)

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
