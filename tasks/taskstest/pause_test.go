package taskstest_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"muster/internal/testutil"
	"muster/tasks"
	"muster/tasks/taskstest"
	"muster/tasks/tasktype"
)

// The tasks of TestPausedWorkflow.
var (
	pauseWork  = tasks.New[string, string]("pause.work")
	pauseNext  = tasks.New[string, string]("pause.next")
	pauseClean = tasks.New[tasks.Failure, string]("pause.clean")
	pausePlan  = tasks.New[string, string]("pause.plan")
)

// Attempts that run at a pause count. What they make ready starts after the pause.
func TestPausedWorkflow(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		sig  tasks.Signature[string]
		then func(*tasks.Client, context.Context, string) error
		want string // the tasks that ran after the pause, after the call of then, and the value or code
	}{
		"chain":        {tasks.Chain(pauseWork.S("a"), pauseNext), (*tasks.Client).Resume, " | next | a!"},
		"cancel":       {tasks.Chain(pauseWork.S("a"), pauseNext).Rescue(pauseClean), (*tasks.Client).Cancel, " | clean | clean cancelled"},
		"revoke":       {tasks.Chain(pauseWork.S("a"), pauseNext).Rescue(pauseClean), (*tasks.Client).Revoke, " |  | revoked"},
		"retry":        {tasks.Chain(pauseWork.S("again", tasks.MaxRetry(3)), pauseNext), (*tasks.Client).Resume, " | work next | again!"},
		"failure":      {pauseWork.S("fail").Rescue(pauseClean), (*tasks.Client).Resume, " | clean | clean error"},
		"delay":        {tasks.Chain(tasks.Chain(pauseWork.S("a"), pauseNext, tasks.In(time.Minute)), pauseNext), (*tasks.Client).Resume, " | next next | a!!"},
		"plan":         {tasks.Chain(pausePlan.S("a"), pauseNext), (*tasks.Client).Resume, " | next next | a!!"},
		"fairness key": {tasks.Chain(pauseWork.S("a"), pauseNext), (*tasks.Client).Resume, " | next | a!"},
		"last task":    {pauseWork.S("a"), nil, " |  | a"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var ran []string
			f := taskstest.NewFunc(t, func(c *tasks.Client) *tasks.Mux {
				mux := tasks.NewMux()
				calls := 0
				pause := func(ctx context.Context) {
					if calls++; calls > 1 {
						ran = append(ran, "work")
					} else if err := c.Pause(ctx, tasks.InfoFrom(ctx).Workflow); err != nil {
						t.Error(err)
					}
				}
				tasks.Handle(mux, pauseWork, func(ctx context.Context, in string) (string, error) {
					if pause(ctx); in == "fail" || in == "again" && calls == 1 {
						return "", errors.New("broken")
					}
					return in, nil
				})
				tasks.HandlePlan(mux, pausePlan, func(ctx context.Context, in string) (tasks.Signature[string], error) {
					pause(ctx)
					return pauseNext.S(in), nil
				})
				tasks.Handle(mux, pauseNext, func(_ context.Context, in string) (string, error) { ran = append(ran, "next"); return in + "!", nil })
				tasks.Handle(mux, pauseClean, func(_ context.Context, f tasks.Failure) (string, error) {
					ran = append(ran, "clean")
					return "clean " + f.Code, nil
				})
				return mux
			})
			ctx := t.Context()
			var opts []tasks.SendOption
			if name == "fairness key" {
				opts = append(opts, tasks.FairnessKey("customer"))
			}
			run, err := tc.sig.Send(ctx, f.Client(), opts...)
			testutil.Ok(t, err)
			f.Drain()
			got := strings.Join(ran, " ") + " | "
			ran = nil
			if tc.then != nil {
				wantPaused(t, f, run, true)
				testutil.Ok(t, tc.then(f.Client(), ctx, run.ID()))
			}
			value, err := run.Wait(ctx)
			var failure *tasks.Failure
			if errors.As(err, &failure) {
				value = failure.Code
			} else if err != nil {
				t.Fatal(err)
			}
			f.Drain()
			wantPaused(t, f, run, false)
			if p, err := run.Progress(ctx); err != nil || !p.Ended {
				t.Errorf("progress: got %+v, %v", p, err)
			}
			if got += strings.Join(ran, " ") + " | " + value; got != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
			if keys := f.Client().Redis().Keys(ctx, "*:paused").Val(); len(keys) > 0 {
				t.Errorf("left: %q", keys)
			}
		})
	}
}

// wantPaused checks whether a workflow is shown as paused.
func wantPaused(t *testing.T, f *taskstest.Fleet, run *tasks.AsyncResult[string], want bool) {
	t.Helper()
	d, err := run.Detail(t.Context())
	if err != nil || d.Paused != want || d.Progress.Paused != want {
		t.Errorf("detail: got %v %v, %v, want %v", d.Paused, d.Progress.Paused, err, want)
	}
	if waits := slices.ContainsFunc(d.Nodes, func(n tasktype.Node) bool { return n.Waits == "the workflow is paused" }); waits != want {
		t.Errorf("nodes that wait for the end of the pause: got %v, want %v", waits, want)
	}
	list, _, err := f.Client().Workflows(t.Context(), tasktype.WorkflowFilter{})
	if err != nil || len(list) != 1 || list[0].Paused != want {
		t.Errorf("list: got %+v, %v, want paused %v", list, err, want)
	}
}

func TestPauseErrors(t *testing.T) {
	t.Parallel()
	mux := tasks.NewMux()
	tasks.Handle(mux, pauseNext, func(_ context.Context, in string) (string, error) { return in, nil })
	f := taskstest.New(t, mux)
	c, ctx := f.Client(), t.Context()
	send := func() *tasks.AsyncResult[string] {
		run, err := pauseNext.S("a").Send(ctx, c, tasks.In(time.Hour))
		testutil.Ok(t, err)
		return run
	}
	want := func(name, id string, want error) {
		t.Helper()
		for verb, call := range map[string]func(*tasks.Client, context.Context, string) error{"pause": (*tasks.Client).Pause, "resume": (*tasks.Client).Resume} {
			for range 2 {
				if err := call(c, ctx, id); !errors.Is(err, want) || (err == nil) != (want == nil) {
					t.Errorf("%s %s: got %v, want %v", verb, name, err, want)
				}
			}
		}
	}
	running := send()
	want("running workflow", running.ID(), nil)
	want("unknown workflow", "none", tasks.ErrUnknown)
	revoked := send()
	testutil.Ok(t, revoked.Revoke(ctx))
	want("revoked workflow", revoked.ID(), tasks.ErrRevoked)
	ended, err := pauseNext.S("a").Send(ctx, c)
	testutil.Ok(t, err)
	if _, err := ended.Wait(ctx); err != nil {
		t.Fatal(err)
	}
	want("ended workflow", ended.ID(), tasks.ErrEnded)
	testutil.Ok(t, running.Pause(ctx))
	if err := running.Retry(ctx); !errors.Is(err, tasks.ErrRunning) {
		t.Errorf("retry: got %v, want %v", err, tasks.ErrRunning)
	}
}
