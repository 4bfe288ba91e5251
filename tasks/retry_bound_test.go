package tasks_test

import (
	"context"
	"errors"
	"testing"

	"muster/tasks"
	"muster/tasks/taskstest"
)

func TestRetryInputOfABoundTask(t *testing.T) {
	t.Parallel()
	first := tasks.New[int, int]("bound.first")
	add := tasks.New[tasks.Pair[int, int], int]("bound.add")
	pair := tasks.Pair[int, int]{First: 1, Second: 10}
	mux := tasks.NewMux()
	tasks.Handle(mux, first, func(_ context.Context, n int) (int, error) { return n, nil })
	tasks.Handle(mux, add, func(_ context.Context, p tasks.Pair[int, int]) (int, error) {
		if p.First < 0 {
			return 0, errors.New("negative")
		}
		return p.First + p.Second, nil
	})
	for name, c := range map[string]struct {
		s     tasks.Signature[int]
		input func(node string) tasks.RetryOption
	}{
		"task":       {tasks.Chain(first.S(-1), tasks.Bind(add, 10)), func(node string) tasks.RetryOption { return tasks.RetryInput(add, node, pair) }},
		"bound task": {tasks.Chain(first.S(-1), tasks.Bind(add, 10)), func(node string) tasks.RetryOption { return tasks.RetryInput(tasks.Bind(add, 10), node, 1) }},
		"JSON": {tasks.Bind(add, 10).S(-1), func(node string) tasks.RetryOption {
			return tasks.RetryInputJSON(node, []byte(`{"second": 10, "first": 1}`))
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := taskstest.New(t, mux)
			run, err := c.s.Send(t.Context(), f.Client())
			if err != nil {
				t.Fatal(err)
			}
			_, err = run.Wait(t.Context())
			failure, ok := errors.AsType[*tasks.Failure](err)
			if !ok {
				t.Fatalf("got %v, want a failure", err)
			}
			other := tasks.RetryInput(add, failure.Node, tasks.Pair[int, int]{First: 1, Second: 2})
			if err := run.Retry(t.Context(), other); !errors.Is(err, tasks.ErrRetryInput) {
				t.Fatalf("another second half: got %v, want %v", err, tasks.ErrRetryInput)
			}
			if err := run.Retry(t.Context(), c.input(failure.Node)); err != nil {
				t.Fatal(err)
			}
			if n, err := run.Wait(t.Context()); err != nil || n != 11 {
				t.Errorf("after the retry: got %d, %v, want 11", n, err)
			}
		})
	}
}
