package tasks_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"muster/tasks"
	"muster/tasks/taskstest"
	"muster/tasks/tasktype"
)

// The rules of docs/how-to/upgrading.md for changes of tasks hold: the signature comes from the sender's release, the
// handler from the worker's.

// Work that was sent under an older name runs, and keeps that name.
func TestAliasRunsWorkOfTheOlderName(t *testing.T) {
	t.Parallel()
	older := tasks.New[int, string]("up.old")
	newer := tasks.New[int, string]("up.new", tasks.Alias("up.old", "up.older"))
	mux := tasks.NewMux()
	tasks.Handle(mux, newer, func(ctx context.Context, n int) (string, error) {
		return fmt.Sprint(tasks.InfoFrom(ctx).Task, " ", n), nil
	})
	f := taskstest.New(t, mux)
	got, err := taskstest.Do(f, tasks.Group(older.S(1), tasks.Chain(tasks.Value(2), older), newer.S(3)))
	if err != nil || fmt.Sprint(got) != "[up.old 1 up.old 2 up.new 3]" {
		t.Errorf("got %q, %v, want the names that they were sent under", got, err)
	}
}

// A type with another optional field reads data written without it, and vice versa.
func TestNewOptionalFieldsPassBetweenReleases(t *testing.T) {
	t.Parallel()
	type v1 struct{ Name string }
	type v2 struct {
		Name string
		Size int `json:",omitempty"`
	}
	one, two := tasks.New[v1, v1]("up.field"), tasks.New[v2, v2]("up.field")
	oldMux, newMux := tasks.NewMux(), tasks.NewMux()
	tasks.Handle(oldMux, one, func(_ context.Context, in v1) (v1, error) { return in, nil })
	tasks.Handle(newMux, two, func(_ context.Context, in v2) (v2, error) { in.Size++; return in, nil })
	if got, err := taskstest.Run(t, newMux, one.S(v1{"a"})); err != nil || got != (v1{"a"}) {
		t.Errorf("a new worker for an old sender: got %+v, %v, want a", got, err)
	}
	if got, err := taskstest.Run(t, oldMux, two.S(v2{"a", 7})); err != nil || got != (v2{"a", 0}) {
		t.Errorf("an old worker for a new sender: got %+v, %v, want a without the field", got, err)
	}
}

// A type that was changed fails the work of the other release, without another attempt.
func TestChangedTypeFailsWorkOfTheOtherRelease(t *testing.T) {
	t.Parallel()
	mux := tasks.NewMux()
	tasks.Handle(mux, tasks.New[int, int]("up.type"), func(_ context.Context, n int) (int, error) { return n, nil })
	f := taskstest.New(t, mux)
	_, err := taskstest.Do(f, tasks.New[string, int]("up.type", tasks.MaxRetry(3)).S("1"))
	if failure := wantFailure(t, err, "does not decode"); failure.Code != tasktype.CodeInput || failure.Attempts != 1 {
		t.Errorf("got code %s after %d attempts, want %s after 1", failure.Code, failure.Attempts, tasktype.CodeInput)
	}
}

// A workflow keeps the options that it was sent with.
func TestOptionsAreThoseOfTheSender(t *testing.T) {
	t.Parallel()
	handled := func(opts ...tasks.TaskOption) *tasks.Mux {
		mux := tasks.NewMux()
		tasks.Handle(mux, tasks.New[int, int]("up.options", opts...), func(ctx context.Context, _ int) (int, error) {
			if n := tasks.InfoFrom(ctx).Attempt; n == 3 {
				return n, nil
			}
			return 0, errors.New("not yet")
		})
		return mux
	}
	sent := tasks.New[int, int]("up.options", tasks.MaxRetry(2), tasks.ConstantBackoff(time.Hour))
	if got, err := taskstest.Run(t, handled(tasks.MaxRetry(0)), sent.S(1)); err != nil || got != 3 {
		t.Errorf("got %d, %v, want 3, the number of attempts that the sender allows", got, err)
	}
}

// A handler may become a planner while workflows run, and a planner may return another plan.
func TestWorkerDeterminesThePlan(t *testing.T) {
	t.Parallel()
	task := tasks.New[int, int]("up.plan")
	step := tasks.New[int, int]("up.step", tasks.MaxRetry(1), tasks.ConstantBackoff(time.Hour))
	mux := tasks.NewMux()
	tasks.HandlePlan(mux, task, func(_ context.Context, n int) (tasks.Signature[int], error) {
		return tasks.Chain(step.S(n), step), nil
	})
	tasks.Handle(mux, step, func(ctx context.Context, n int) (int, error) {
		if tasks.InfoFrom(ctx).Attempt == 1 {
			return 0, errors.New("not yet")
		}
		return n + 1, nil
	})
	if got, err := taskstest.Run(t, mux, task.S(1)); err != nil || got != 3 {
		t.Errorf("got %d, %v, want 3, by the options of the planner's release", got, err)
	}
}
