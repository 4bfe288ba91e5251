package tasks_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"muster/tasks"
	"muster/tasks/taskstest"
)

// The delay between attempts is the ConstantBackoff of a task, also if it is zero.
func TestConstantBackoffIsTheDelay(t *testing.T) {
	t.Parallel()
	for _, d := range []time.Duration{0, time.Millisecond, time.Minute} {
		step := tasks.New[int, int]("backoff.step", tasks.MaxRetry(1), tasks.ConstantBackoff(d))
		mux := tasks.NewMux()
		tasks.Handle(mux, step, func(ctx context.Context, n int) (int, error) {
			if tasks.InfoFrom(ctx).Attempt == 1 {
				return 0, errors.New("not yet")
			}
			return n, nil
		})
		f := taskstest.New(t, mux)
		began := f.Now()
		if _, err := taskstest.Do(f, step.S(1)); err != nil {
			t.Fatal(err)
		}
		if got := f.Now().Sub(began); got != d {
			t.Errorf("ConstantBackoff(%s): waited %s, want %s", d, got, d)
		}
	}
}
