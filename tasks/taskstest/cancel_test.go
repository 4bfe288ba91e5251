package taskstest_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"muster/internal/testutil"
	"muster/tasks"
	"muster/tasks/taskstest"
	"muster/tasks/tasktype"
)

// The tasks of TestCancelledWorkflowHandlesFailures.
var (
	cancelWork  = tasks.New[string, string]("cancel.work")
	cancelNext  = tasks.New[string, string]("cancel.next")
	cancelClean = tasks.New[tasks.Failure, string]("cancel.clean")
	cancelNote  = tasks.New[tasks.Failure, string]("cancel.note")
	cancelAll   = tasks.New[[]tasks.Outcome[string], string]("cancel.all")
	cancelPlan  = tasks.New[string, string]("cancel.plan")
)

// Tasks that handle failures run once after a cancel, in plans too, but their followers do not. A success counts.
func TestCancelledWorkflowHandlesFailures(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		sig  tasks.Signature[string]
		want string // the value or code, and the tasks that ran after the cancel
	}{
		"rescue":            {cancelWork.S("a").Rescue(cancelClean), "clean cancelled: clean"},
		"after a rescue":    {tasks.Chain(cancelWork.S("a").Rescue(cancelClean), cancelNext), "cancelled: clean"},
		"errback":           {tasks.OnError(tasks.Chain(cancelWork.S("a"), cancelNext), cancelNote), "cancelled: note cancelled"},
		"settled group":     {tasks.Chord(tasks.Settle(tasks.Group(cancelWork.S("a"), cancelNext.S("b", tasks.In(time.Hour)))), cancelAll), "all 2: all"},
		"after a settled":   {tasks.Chain(tasks.Chord(tasks.Settle(tasks.Group(cancelWork.S("a"))), cancelAll), cancelNext), "cancelled: all"},
		"success":           {cancelWork.S("succeed"), "succeed:"},
		"after a success":   {tasks.Chain(cancelWork.S("succeed"), cancelNext), "cancelled:"},
		"retries":           {cancelWork.S("a", tasks.MaxRetry(5)), "cancelled:"},
		"plan made by then": {cancelPlan.S("late"), "cancelled:"},
		"plan":              {cancelPlan.S("early").Rescue(cancelClean), "clean cancelled: clean"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var ran []string
			f := taskstest.NewFunc(t, func(c *tasks.Client) *tasks.Mux {
				mux := tasks.NewMux()
				work := func(ctx context.Context, in string) error {
					if err := c.Cancel(context.WithoutCancel(ctx), tasks.InfoFrom(ctx).Workflow); err != nil {
						return err
					}
					<-ctx.Done()
					if cause := context.Cause(ctx); !errors.Is(cause, tasks.ErrCancelled) {
						t.Errorf("cause: got %v, want %v", cause, tasks.ErrCancelled)
					}
					if in == "succeed" || in == "late" {
						return nil
					}
					return ctx.Err()
				}
				tasks.Handle(mux, cancelWork, func(ctx context.Context, in string) (string, error) { return in, work(ctx, in) })
				tasks.HandlePlan(mux, cancelPlan, func(ctx context.Context, in string) (tasks.Signature[string], error) {
					if in == "late" {
						return cancelNext.S("planned"), work(ctx, in)
					}
					return tasks.Chain(cancelWork.S("a"), cancelNext), nil
				})
				tasks.Handle(mux, cancelNext, func(context.Context, string) (string, error) { ran = append(ran, "next"); return "next", nil })
				tasks.Handle(mux, cancelClean, func(_ context.Context, f tasks.Failure) (string, error) {
					ran = append(ran, "clean")
					return "clean " + f.Code, nil
				})
				tasks.Handle(mux, cancelNote, func(_ context.Context, f tasks.Failure) (string, error) {
					ran = append(ran, "note "+f.Code)
					return "", nil
				})
				tasks.Handle(mux, cancelAll, func(_ context.Context, all []tasks.Outcome[string]) (string, error) {
					ran = append(ran, "all")
					return fmt.Sprintf("all %d", len(all)), nil
				})
				return mux
			})
			got, err := taskstest.Do(f, tc.sig)
			var failure *tasks.Failure
			if errors.As(err, &failure) {
				got = failure.Code
			} else if err != nil {
				t.Fatal(err)
			}
			f.Drain()
			flows, _, err := f.Client().Workflows(t.Context(), tasktype.WorkflowFilter{})
			testutil.Ok(t, err)
			for _, w := range flows {
				if w.State == tasktype.WorkflowRunning {
					t.Errorf("workflow %s has not ended", w.ID)
				}
			}
			if got += ":" + strings.TrimRight(" "+strings.Join(ran, ","), " "); got != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}
