package taskstest_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"muster/internal/testutil"
	"muster/tasks"
	"muster/tasks/taskstest"
)

// Readers get the kept chunks in order, learn of another attempt and of chunks that were deleted, and end with the node.
func TestOutput(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		opts  []tasks.TaskOption
		node  string
		sends []string // the first attempt of a task with "!" fails after its output
		many  bool     // two reads
		want  string
	}{
		"one":            {sends: []string{"a b c"}, want: "0/1>a 0/1 b 0/1 c"},
		"other attempt":  {sends: []string{"a b !"}, want: "0/1>a 0/1 b 0/1 ! 0/2>a 0/2 b 0/2 !"},
		"several tasks":  {sends: []string{"a b", "c"}, want: "0/1>a 0/1 b 1/1>c"},
		"one of several": {sends: []string{"a b", "c"}, node: "1", want: "1/1>c"},
		"chunks":         {opts: []tasks.TaskOption{tasks.KeepOutput(2, 1000)}, sends: []string{"a b c d !"}, want: "0/2>d(8) 0/2 !"},
		"bytes":          {opts: []tasks.TaskOption{tasks.KeepOutput(10, 150)}, sends: []string{"a b c d"}, want: "0/1>c(2) 0/1 d"},
		"none":           {sends: []string{""}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			say := tasks.New[string, int]("output.say", append(tc.opts, tasks.MaxRetry(1))...)
			mux := tasks.NewMux()
			tasks.Handle(mux, say, func(ctx context.Context, in string) (int, error) {
				for _, word := range strings.Fields(in) {
					if err := tasks.Emit(ctx, word); err != nil {
						return 0, err
					}
				}
				if strings.HasSuffix(in, "!") && tasks.InfoFrom(ctx).Attempt == 1 {
					return 0, errors.New("broken")
				}
				return 1, nil
			})
			f := taskstest.New(t, mux)
			run := testutil.Must(tasks.Each(tc.sends, say).Send(t.Context(), f.Client()))(t)
			f.Drain()
			var only []string
			if tc.node != "" {
				only = []string{tc.node}
			}
			var got []string
			for c, err := range run.Output(t.Context(), only...) {
				testutil.Ok(t, err)
				mark, lost := " ", ""
				if c.Begin {
					mark = ">"
				}
				if c.Lost > 0 {
					lost = fmt.Sprintf("(%d)", c.Lost)
				}
				got = append(got, fmt.Sprintf("%s/%d%s%s%s", c.Node, c.Attempt, mark, c.Text(), lost))
			}
			if got := strings.Join(got, " "); got != tc.want {
				t.Errorf("got %s, want %s", got, tc.want)
			}
			for _, err := range run.Output(t.Context(), "7") {
				if !errors.Is(err, tasks.ErrNotFound) {
					t.Errorf("unknown node: got %v, want %v", err, tasks.ErrNotFound)
				}
			}
		})
	}
}

// An error of Emit is returned at once, and the values of an option are checked.
func TestEmitErrors(t *testing.T) {
	t.Parallel()
	mux := tasks.NewMux()
	small := tasks.New[int, string]("output.small", tasks.KeepOutput(1, 100))
	tasks.Handle(mux, small, func(ctx context.Context, _ int) (string, error) {
		return fmt.Sprint(tasks.Emit(ctx, make(chan int)), "; ", tasks.Emit(ctx, strings.Repeat("x", 100))), nil
	})
	got, err := taskstest.Run(t, mux, small.S(1))
	if err != nil || !strings.Contains(got, "encode the value as JSON") || !strings.Contains(got, "the output of the task at most 100; see KeepOutput") {
		t.Errorf("got %q, %v", got, err)
	}
	if err := tasks.Emit(t.Context(), 1); err == nil {
		t.Error("outside a handler: got no error")
	}
	if _, err := taskstest.Run(t, mux, tasks.New[int, string]("output.none", tasks.KeepOutput(0, 1)).S(1)); !errors.Is(err, tasks.ErrInvalid) {
		t.Errorf("got %v, want %v", err, tasks.ErrInvalid)
	}
}
