package taskstest_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"muster/internal/testutil"
	"muster/tasks"
	"muster/tasks/taskstest"
	"muster/tasks/tasktype"
)

var stepsTask = tasks.New[string, []int]("steps.work", tasks.MaxRetry(1))

// stepped returns a fleet whose task makes three steps, each with the number of calls of its function so far, and fails after the second one
// in its first attempts.
func stepped(t *testing.T, fails int, opts ...taskstest.Option) (*taskstest.Fleet, map[string]int) {
	ran := map[string]int{}
	mux := tasks.NewMux()
	attempts := 0
	tasks.Handle(mux, stepsTask, func(ctx context.Context, _ string) (out []int, err error) {
		attempts++
		for _, name := range []string{"a", "b", "c"} {
			if name == "c" && attempts <= fails {
				return nil, errors.New("broken")
			}
			n, err := tasks.Step(ctx, name, func(context.Context) (int, error) { ran[name]++; return ran[name], nil })
			if err != nil {
				return nil, err
			}
			out = append(out, n)
		}
		return out, nil
	})
	return taskstest.New(t, mux, opts...), ran
}

// The function of a step runs until its value is stored, and not again after that.
func TestSteps(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		s     tasks.Signature[[]int]
		fails int
		opts  []taskstest.Option
		retry []tasks.RetryOption // of a failed workflow
		want  []int
		steps string // that ran, by call
	}{
		"one attempt":             {s: stepsTask.S(""), want: []int{1, 1, 1}, steps: "[[a b c]]"},
		"error":                   {s: stepsTask.S(""), fails: 1, want: []int{1, 1, 1}, steps: "[[a b] [c]]"},
		"chain":                   {s: tasks.After(stepsTask.S(""), stepsTask.S("")), fails: 1, want: []int{2, 2, 2}, steps: "[[a b] [c] [a b c]]"},
		"death after a step":      {s: stepsTask.S(""), opts: []taskstest.Option{taskstest.DiesAfterStep(stepsTask, "b")}, want: []int{1, 1, 1}, steps: "[[a b] [c]]"},
		"retry":                   {s: stepsTask.S(""), fails: 2, retry: []tasks.RetryOption{}, want: []int{1, 1, 1}, steps: "[[a b] [] [c]]"},
		"retry with a new input":  {s: stepsTask.S(""), fails: 2, retry: []tasks.RetryOption{stepsTask.RetryInput("", "x")}, want: []int{1, 1, 1}, steps: "[[a b] [] [c]]"},
		"retry without a step":    {s: stepsTask.S(""), fails: 2, retry: []tasks.RetryOption{tasks.DropSteps("0", "b")}, want: []int{1, 2, 1}, steps: "[[a b] [] [b c]]"},
		"retry without all steps": {s: stepsTask.S(""), fails: 2, retry: []tasks.RetryOption{tasks.DropSteps("0")}, want: []int{2, 2, 1}, steps: "[[a b] [] [a b c]]"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f, _ := stepped(t, tc.fails, tc.opts...)
			got, err := taskstest.Do(f, tc.s, tasks.ID("id"))
			if tc.retry != nil {
				testutil.Ok(t, tasks.Attach[[]int](f.Client(), "id").Retry(t.Context(), tc.retry...))
				f.Drain()
				got, err = tasks.Attach[[]int](f.Client(), "id").Wait(t.Context())
			}
			if err != nil || !slices.Equal(got, tc.want) {
				t.Errorf("got %v, %v, want %v", got, err, tc.want)
			}
			var steps [][]string
			for _, c := range f.Calls() {
				steps = append(steps, c.Steps)
			}
			if got := fmt.Sprint(steps); got != tc.steps {
				t.Errorf("got steps %s, want %s", got, tc.steps)
			}
			d, err := f.Client().Workflow("id").Node(t.Context(), "0")
			if names := stepNames(d); err != nil || !slices.Equal(slices.Sorted(slices.Values(names)), []string{"a", "b", "c"}) || d.Steps[0].Started.IsZero() {
				t.Errorf("got stored steps %v, %v, want a, b and c", names, err)
			}
		})
	}
}

func stepNames(d tasktype.NodeDetail) (names []string) {
	for _, s := range d.Steps {
		names = append(names, s.Name)
	}
	return names
}

// A task that starts anew, because its input changes, has no steps.
func TestRetryWithAnotherInputDropsSteps(t *testing.T) {
	t.Parallel()
	all := tasks.New[[]tasks.Outcome[string], int]("steps.all")
	fixed, runs := false, 0
	mux := tasks.NewMux()
	tasks.Handle(mux, retryWork, func(_ context.Context, in string) (string, error) {
		if !fixed {
			return "", errors.New("broken")
		}
		return in, nil
	})
	tasks.Handle(mux, all, func(ctx context.Context, _ []tasks.Outcome[string]) (int, error) {
		return tasks.Step(ctx, "count", func(context.Context) (int, error) { runs++; return runs, nil })
	})
	f := taskstest.New(t, mux)
	bad := retryWork.S("x")
	run := testutil.Must(tasks.After(tasks.Chord(tasks.Settle(tasks.Group(bad)), all), bad).Send(t.Context(), f.Client()))(t)
	f.Drain()
	fixed = true
	testutil.Ok(t, run.Retry(t.Context()))
	f.Drain()
	if _, err := run.Wait(t.Context()); err != nil || runs != 2 {
		t.Errorf("got %d runs of the step, %v, want 2", runs, err)
	}
}

// Errors name the step and the remedy, and none is retried.
func TestStepErrors(t *testing.T) {
	t.Parallel()
	one := func(context.Context) (int, error) { return 1, nil }
	for name, tc := range map[string]struct {
		h    func(ctx context.Context) error
		want string
	}{
		"name twice": {func(ctx context.Context) error {
			if _, err := tasks.Step(ctx, "x", one); err != nil {
				return err
			}
			_, err := tasks.Step(ctx, "x", one)
			return err
		}, "step x: this attempt has used the name before"},
		"empty name": {func(ctx context.Context) error { _, err := tasks.Step(ctx, "", one); return err }, "give a name of 1 to 100 bytes"},
		"no JSON": {func(ctx context.Context) error {
			_, err := tasks.Step(ctx, "x", func(context.Context) (chan int, error) { return nil, nil })
			return err
		}, "step x: encode its value as JSON"},
		"does not decode": {func(ctx context.Context) error {
			_, err := tasks.Step(ctx, "x", func(context.Context) (error, error) { return errors.New("e"), nil })
			return err
		}, "value of step x of task steps.work does not decode as error"},
		"too large": {func(ctx context.Context) error {
			_, err := tasks.Step(ctx, "x", func(context.Context) (string, error) { return strings.Repeat("x", 16<<20), nil })
			return err
		}, "step x: the value has 16777218 bytes"},
		"saved too large": {func(ctx context.Context) error {
			for range 2 { // it replaces the first
				if err := tasks.Save(ctx, strings.Repeat("x", 9<<20)); err != nil {
					return err
				}
			}
			_, err := tasks.Step(ctx, "x", func(context.Context) (string, error) { return strings.Repeat("x", 9<<20), nil })
			return err
		}, "more than 16777216; store large data elsewhere"},
		"too many": {func(ctx context.Context) error {
			for i := range 1001 {
				if _, err := tasks.Step(ctx, fmt.Sprint(i), one); err != nil {
					return err
				}
			}
			return nil
		}, "step 1000: the task has more than 1000 steps; use Save"},
		"saved type": {func(ctx context.Context) error {
			if err := tasks.Save(ctx, "text"); err != nil {
				return err
			}
			_, _, err := tasks.Saved[int](ctx)
			return err
		}, `tasks.DropSteps("0")`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			mux := tasks.NewMux()
			tasks.Handle(mux, stepsTask, func(ctx context.Context, _ string) ([]int, error) { return nil, tc.h(ctx) })
			f := taskstest.New(t, mux)
			_, err := taskstest.Do(f, stepsTask.S(""))
			if fail := (*tasks.Failure)(nil); !errors.As(err, &fail) || !strings.Contains(fail.Message, tc.want) {
				t.Errorf("got %v, want %q", err, tc.want)
			}
			if n := len(f.Calls()); n != 1 {
				t.Errorf("got %d attempts, want 1", n)
			}
			if err := tc.h(t.Context()); err == nil || name != "empty name" && name != "saved type" && !strings.Contains(err.Error(), "does not belong to a handler") {
				t.Errorf("outside a handler: got %v", err)
			}
		})
	}
}

// A release has changed the type of a step. DropSteps is the way out, and refuses nodes and steps that do not exist.
func TestDropSteps(t *testing.T) {
	t.Parallel()
	mux := tasks.NewMux()
	calls := 0
	tasks.Handle(mux, stepsTask, func(ctx context.Context, _ string) ([]int, error) {
		if calls++; calls == 1 {
			_, err := tasks.Step(ctx, "x", func(context.Context) (string, error) { return "old", nil })
			return nil, errors.Join(err, errors.New("broken"))
		}
		n, err := tasks.Step(ctx, "x", func(context.Context) (int, error) { return 7, nil })
		return []int{n}, err
	})
	f := taskstest.New(t, mux)
	run := testutil.Must(stepsTask.S("").Send(t.Context(), f.Client()))(t)
	f.Drain()
	if _, err := run.Wait(t.Context()); err == nil || !strings.Contains(err.Error(), `stored value of step x of task steps.work does not decode as int`) ||
		!strings.Contains(err.Error(), `tasks.DropSteps("0", "x")`) {
		t.Fatalf("got %v", err)
	}
	for _, opt := range []tasks.RetryOption{tasks.DropSteps("1"), tasks.DropSteps("0", "y")} {
		if err := run.Retry(t.Context(), opt); !errors.Is(err, tasks.ErrInvalid) {
			t.Errorf("got %v, want %v", err, tasks.ErrInvalid)
		}
	}
	testutil.Ok(t, run.Retry(t.Context(), tasks.DropSteps("0", "x")))
	f.Drain()
	if got, err := run.Wait(t.Context()); err != nil || !slices.Equal(got, []int{7}) {
		t.Errorf("got %v, %v", got, err)
	}
}

// A loop continues at its saved cursor, and steps run at the same time.
func TestSaved(t *testing.T) {
	t.Parallel()
	mux := tasks.NewMux()
	tasks.Handle(mux, stepsTask, func(ctx context.Context, _ string) ([]int, error) {
		var done []int
		var mu sync.Mutex
		var wg sync.WaitGroup
		for i := range 10 {
			wg.Go(func() {
				if n, err := tasks.Step(ctx, fmt.Sprint(i), func(context.Context) (int, error) { return i, nil }); err == nil {
					mu.Lock()
					defer mu.Unlock()
					done = append(done, n)
				}
			})
		}
		wg.Wait()
		from, ok, err := tasks.Saved[int](ctx)
		if attempt := tasks.InfoFrom(ctx).Attempt; err != nil || ok != (attempt == 2) {
			return nil, errors.Join(err, errors.New("wrong saved value"))
		}
		for i := from; i < 6; i++ {
			if err := tasks.Save(ctx, i+1); err != nil {
				return nil, err
			}
			if i == 2 {
				return nil, errors.New("broken")
			}
		}
		return append(slices.Sorted(slices.Values(done)), from), nil
	})
	f := taskstest.New(t, mux)
	got, err := taskstest.Do(f, stepsTask.S(""), tasks.ID("id"))
	if want := []int{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 3}; err != nil || !slices.Equal(got, want) {
		t.Errorf("got %v, %v, want %v", got, err, want)
	}
	if d, err := f.Client().Workflow("id").Node(t.Context(), "0"); err != nil || d.Saved == nil || string(d.Saved.Value) != "6" || len(d.Steps) != 10 {
		t.Errorf("got %+v, %v, want the saved value 6 and 10 steps", d, err)
	}
}
