package taskstest_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"muster/internal/testutil"
	"muster/tasks"
	"muster/tasks/taskstest"
	"muster/tasks/tasktype"
)

// The tasks of the tests of retries. The work "bad" fails until it is fixed.
var (
	retryWork = tasks.New[string, string]("retry.work")
	retryNext = tasks.New[string, string]("retry.next")
	retryList = tasks.New[string, []string]("retry.list")
	retryAll  = tasks.New[[]tasks.Outcome[string], []string]("retry.all")
	retryJoin = tasks.New[[]string, string]("retry.join")
	retryNote = tasks.New[tasks.Failure, string]("retry.note")
	retryPlan = tasks.New[string, string]("retry.plan")
)

// retryFleet returns a fleet for the tasks above, and the tasks that ran with their inputs.
func retryFleet(t *testing.T, fixed *bool) (*taskstest.Fleet, *[]string) {
	ran := &[]string{}
	mux := tasks.NewMux()
	tasks.Handle(mux, retryWork, func(_ context.Context, in string) (string, error) {
		if *ran = append(*ran, "work "+in[:min(len(in), 8)]); in == "bad" && !*fixed {
			return "", errors.New("broken")
		}
		return in, nil
	})
	tasks.Handle(mux, retryNext, func(_ context.Context, in string) (string, error) {
		*ran = append(*ran, "next "+in)
		return in + "!", nil
	})
	tasks.Handle(mux, retryList, func(_ context.Context, in string) ([]string, error) {
		*ran = append(*ran, "list")
		return strings.Fields(in), nil
	})
	tasks.Handle(mux, retryAll, func(_ context.Context, all []tasks.Outcome[string]) (out []string, err error) {
		*ran = append(*ran, "all")
		for _, o := range all {
			if o.Err == nil {
				out = append(out, o.Value)
			}
		}
		return out, nil
	})
	tasks.Handle(mux, retryJoin, func(_ context.Context, in []string) (string, error) {
		*ran = append(*ran, "join")
		return strings.Join(in, " "), nil
	})
	tasks.Handle(mux, retryNote, func(_ context.Context, f tasks.Failure) (string, error) {
		*ran = append(*ran, "note "+f.Message)
		return "noted", nil
	})
	tasks.HandlePlan(mux, retryPlan, func(_ context.Context, in string) (tasks.Signature[string], error) {
		*ran = append(*ran, "plan")
		return tasks.Chord(tasks.Group(retryWork.S("fine"), retryWork.S(in)), retryJoin), nil
	})
	return taskstest.New(t, mux), ran
}

// Failed and skipped tasks run again, and those whose input depends on them. Other successes keep their values.
func TestRetry(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		sig  tasks.Signature[string]
		want string // the value after the retry, and the tasks that ran then
	}{
		"chain":  {tasks.Chain(tasks.After(retryWork.S("fine"), retryWork.S("bad")), retryNext), "bad!: work bad, next bad"},
		"group":  {tasks.Chord(tasks.Group(retryWork.S("fine"), retryWork.S("bad")), retryJoin), "fine bad: work bad, join"},
		"map":    {tasks.Chord(tasks.Map(retryList.S("a bad b"), retryWork), retryJoin), "a bad b: work bad, join"},
		"plan":   {retryPlan.S("bad"), "fine bad: work bad, join"},
		"errors": {tasks.OnError(tasks.OnError(retryWork.S("bad"), retryNote), retryNote), "bad: work bad"},
		"handled failure": {tasks.Chord(tasks.Group(retryWork.S("bad").Rescue(retryNote), tasks.Chain(retryWork.S("bad"), retryNext)), retryJoin),
			"bad bad!: work bad, work bad, next bad, join"},
		"members over outcomes": {tasks.After(tasks.Chord(tasks.Map(tasks.Chord(tasks.Settle(tasks.Group(retryWork.S("a"), retryWork.S("bad"))), retryAll), retryWork), retryJoin), retryWork.S("bad")),
			"bad: all, join, work a, work bad, work bad, work bad"},
		"large input that was skipped": {tasks.After(retryWork.S("bad"), retryWork.S(strings.Repeat("x", 5000))), strings.Repeat("x", 5000) + ": work bad, work xxxxxxxx"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			fixed := false
			f, ran := retryFleet(t, &fixed)
			run := testutil.Must(tc.sig.Send(t.Context(), f.Client()))(t)
			f.Drain()
			first := slices.Clone(*ran)
			for range 2 { // it fails a second time
				*ran = nil
				testutil.Ok(t, run.Retry(t.Context()))
				f.Drain()
				if _, err := run.Wait(t.Context()); err == nil {
					t.Fatal("got a value of broken work, want a failure")
				}
			}
			for _, task := range *ran {
				if !slices.Contains(first, task) {
					t.Errorf("%s ran in the retry and not before", task)
				}
			}
			*ran, fixed = nil, true
			testutil.Ok(t, run.Retry(t.Context()))
			f.Drain()
			got := testutil.Must(run.Wait(t.Context()))(t)
			if name != "chain" && name != "handled failure" {
				slices.Sort(*ran)
				if i := slices.Index(*ran, "join"); i >= 0 && name != "members over outcomes" {
					*ran = append(slices.Delete(*ran, i, i+1), "join")
				}
			}
			if got += ": " + strings.Join(*ran, ", "); got != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
			if err := run.Retry(t.Context()); !errors.Is(err, tasks.ErrEnded) {
				t.Errorf("retry of a success: got %v, want %v", err, tasks.ErrEnded)
			}
		})
	}
}

func TestRetryWithAnotherInput(t *testing.T) {
	t.Parallel()
	fixed := false
	f, ran := retryFleet(t, &fixed)
	run := testutil.Must(tasks.Chord(tasks.Group(retryWork.S("fine"), retryWork.S("bad")), retryJoin).Send(t.Context(), f.Client()))(t)
	f.Drain()
	for want, opt := range map[string]tasks.RetryOption{
		"node 1: it is of task retry.work, not retry.next": retryNext.RetryInput("1", "x"),
		"node 0 does not run again":                        retryWork.RetryInput("0", "x"),
		"node 9 does not exist":                            retryWork.RetryInput("9", "x"),
		`node id "x": expected an index`:                   tasks.RetryInputJSON("x", []byte("1")),
		"0 nodes of task retry.next have failed":           retryNext.RetryInput("", "x"),
		"the node of an input is missing":                  tasks.RetryInputJSON("", []byte("1")),
		"node 1: it is not JSON":                           tasks.RetryInputJSON("1", []byte("{")),
		"node 1: it has 16777219 bytes":                    tasks.RetryInputJSON("1", []byte(`"`+strings.Repeat("x", 16<<20+1)+`"`)),
	} {
		if err := run.Retry(t.Context(), opt); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %.200v, want %s", err, want)
		}
	}
	*ran = nil
	testutil.Ok(t, run.Retry(t.Context(), retryWork.RetryInput("", "good")))
	d, err := run.Node(t.Context(), "1")
	if err != nil || string(d.Input) != `"good"` || len(d.Tried) != 1 || d.Tried[0].Message != "broken" || d.Tried[0].Outcome != tasktype.OutcomeFailure {
		t.Errorf("node: got %+v, %v, want the new input and the failed run", d, err)
	}
	f.Drain()
	if got, err := run.Wait(t.Context()); err != nil || got != "fine good" {
		t.Errorf("got %q, %v, want %q", got, err, "fine good")
	}
	if got := fmt.Sprint(*ran); got != "[work good join]" {
		t.Errorf("got runs %s, want [work good join]", got)
	}
}

// The input of a bound task has its two halves; the second is the bound one.
func TestRetryInputOfABoundTask(t *testing.T) {
	t.Parallel()
	add := tasks.New[tasks.Pair[int, int], int]("bound.add")
	bound := tasks.Bind(add, 10)
	mux := tasks.NewMux()
	tasks.Handle(mux, add, func(_ context.Context, p tasks.Pair[int, int]) (int, error) {
		if p.First < 0 {
			return 0, errors.New("negative")
		}
		return p.First + p.Second, nil
	})
	for name, opt := range map[string]tasks.RetryOption{
		"task":       add.RetryInput("0", tasks.Pair[int, int]{First: 1, Second: 10}),
		"bound task": bound.RetryInput("0", 1),
		"JSON":       tasks.RetryInputJSON("0", []byte(`{"second": 10, "first": 1}`)),
	} {
		f := taskstest.New(t, mux)
		run := testutil.Must(bound.S(-1).Send(t.Context(), f.Client()))(t)
		f.Drain()
		other := add.RetryInput("0", tasks.Pair[int, int]{First: 1, Second: 2})
		if err := run.Retry(t.Context(), other); !errors.Is(err, tasks.ErrInvalid) {
			t.Fatalf("another second half: got %v, want %v", err, tasks.ErrInvalid)
		}
		testutil.Ok(t, run.Retry(t.Context(), opt))
		if n, err := run.Wait(t.Context()); err != nil || n != 11 {
			t.Errorf("%s: got %d, %v, want 11", name, n, err)
		}
	}
}

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
					if err := c.Workflow(tasks.InfoFrom(ctx).Workflow).Cancel(context.WithoutCancel(ctx)); err != nil {
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
			flows, _, err := f.Client().Inspect().Workflows(t.Context(), tasktype.WorkflowFilter{})
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

// The tasks of the tests of deadlines.
var (
	deadlineWork  = tasks.New[string, string]("deadline.work")
	deadlineJoin  = tasks.New[[]string, string]("deadline.join")
	deadlineClean = tasks.New[tasks.Failure, string]("deadline.clean")
)

// deadlineFleet returns a fleet whose work fails while fail is true.
func deadlineFleet(t *testing.T, fail *bool) *taskstest.Fleet {
	mux := tasks.NewMux()
	tasks.Handle(mux, deadlineWork, func(_ context.Context, in string) (string, error) {
		if *fail {
			return "", errors.New("broken")
		}
		return in, nil
	})
	tasks.Handle(mux, deadlineClean, func(_ context.Context, f tasks.Failure) (string, error) { return "clean " + f.Code, nil })
	return taskstest.New(t, mux)
}

// wantNoTimers checks that nothing is left in the agenda of a fleet.
func wantNoTimers(t *testing.T, f *taskstest.Fleet) {
	t.Helper()
	if box, err := f.Client().Inspect().Outbox(t.Context()); err != nil || box.Entries != 0 {
		t.Errorf("entries of the agenda: got %+v, %v, want none", box, err)
	}
}

func TestDeadline(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		sig    tasks.Signature[string]
		change func(*tasks.Workflow, context.Context) error // before the deadline
		want   string                                       // the value or the code of the failure
	}{
		"group":     {tasks.Chord(tasks.Group(deadlineWork.S("a"), deadlineWork.S("b")).With(tasks.AtMost(1)), deadlineJoin), nil, "deadline"},
		"pending":   {deadlineWork.S("a", tasks.In(time.Hour)), nil, "deadline"},
		"follower":  {tasks.Chain(deadlineWork.S("a"), deadlineWork, tasks.In(time.Hour)), nil, "deadline"},
		"rescue":    {deadlineWork.S("a", tasks.In(time.Hour)).Rescue(deadlineClean), nil, "clean deadline"},
		"paused":    {deadlineWork.S("a", tasks.In(time.Second)).Rescue(deadlineClean), (*tasks.Workflow).Pause, "clean deadline"},
		"cancelled": {deadlineWork.S("a", tasks.In(time.Hour)), (*tasks.Workflow).Cancel, "cancelled"},
		"revoked":   {deadlineWork.S("a", tasks.In(time.Hour)), (*tasks.Workflow).Revoke, "revoked"},
		"in time":   {deadlineWork.S("a"), nil, "a"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := deadlineFleet(t, new(bool))
			ctx, at := t.Context(), f.Now().Add(time.Minute)
			opts := []tasks.SendOption{tasks.Deadline(at)}
			if name == "group" {
				opts = append(opts, tasks.In(time.Hour))
			}
			run := testutil.Must(tc.sig.Send(ctx, f.Client(), opts...))(t)
			if p, err := run.Progress(ctx); err != nil || !p.Deadline.Equal(at) {
				t.Errorf("progress: got %+v, %v, want a deadline", p, err)
			}
			if tc.change != nil {
				testutil.Ok(t, tc.change(&run.Workflow, ctx))
			}
			got, err := run.Wait(ctx)
			var failure *tasks.Failure
			if errors.As(err, &failure) {
				got = failure.Code
				if errors.Is(err, tasks.ErrDeadline) != (got == tasktype.CodeDeadline) || errors.Is(err, tasks.ErrCancelled) != (got != "revoked") {
					t.Errorf("failure %+v matches the wrong errors", failure)
				}
			} else if err != nil {
				t.Fatal(err)
			}
			if got != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
			if after := f.Now().Sub(at); (after >= 0) != strings.Contains(got, "deadline") || after > time.Second {
				t.Errorf("ended %s after the deadline", after)
			}
			wantNoTimers(t, f)
		})
	}
}

// A retry after the deadline has none; a retry before it has the same.
func TestRetryAndDeadline(t *testing.T) {
	t.Parallel()
	fail := false
	f := deadlineFleet(t, &fail)
	ctx := t.Context()
	run := testutil.Must(deadlineWork.S("a", tasks.In(time.Hour)).Send(ctx, f.Client(), tasks.Deadline(f.Now().Add(time.Minute))))(t)
	if _, err := run.Wait(ctx); !errors.Is(err, tasks.ErrDeadline) {
		t.Fatalf("got %v, want %v", err, tasks.ErrDeadline)
	}
	testutil.Ok(t, run.Retry(ctx))
	if got, err := run.Wait(ctx); err != nil || got != "a" {
		t.Errorf("retry after the deadline: got %q, %v", got, err)
	}
	if p, err := run.Progress(ctx); err != nil || !p.Deadline.IsZero() {
		t.Errorf("progress: got %+v, %v, want no deadline", p, err)
	}

	fail = true
	at := f.Now().Add(time.Minute)
	run = testutil.Must(tasks.Chain(deadlineWork.S("b"), deadlineWork, tasks.In(time.Hour)).Send(ctx, f.Client(), tasks.Deadline(at)))(t)
	if _, err := run.Wait(ctx); errors.Is(err, tasks.ErrDeadline) || !errors.As(err, new(*tasks.Failure)) {
		t.Fatalf("got %v, want a failure", err)
	}
	f.Drain()
	fail = false
	testutil.Ok(t, run.Retry(ctx))
	if _, err := run.Wait(ctx); !errors.Is(err, tasks.ErrDeadline) || f.Now().Before(at) {
		t.Errorf("retry before the deadline: got %v at %s", err, f.Now())
	}
	wantNoTimers(t, f)
}

func TestDeadlineInThePast(t *testing.T) {
	t.Parallel()
	f := deadlineFleet(t, new(bool))
	for _, at := range []time.Time{f.Now().Add(-time.Second), {}} {
		if _, err := deadlineWork.S("a").Send(t.Context(), f.Client(), tasks.Deadline(at)); !errors.Is(err, tasks.ErrInvalid) {
			t.Errorf("deadline %s: got %v, want %v", at, err, tasks.ErrInvalid)
		}
	}
	results, err := f.Client().SendMany(t.Context(), []tasks.Sending{
		{Work: deadlineWork.S("a"), Options: []tasks.SendOption{tasks.Deadline(f.Now().Add(time.Hour))}},
		{Work: deadlineWork.S("b"), Options: []tasks.SendOption{tasks.Deadline(f.Now())}},
	})
	if !errors.Is(err, tasks.ErrInvalid) || results[0].Err != nil || !errors.Is(results[1].Err, tasks.ErrInvalid) {
		t.Errorf("got %s, %v, want one error", fmt.Sprint(results), err)
	}
}

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
		then func(*tasks.Workflow, context.Context) error
		want string // the tasks that ran after the pause, after the call of then, and the value or code
	}{
		"chain":        {tasks.Chain(pauseWork.S("a"), pauseNext), (*tasks.Workflow).Resume, " | next | a!"},
		"cancel":       {tasks.Chain(pauseWork.S("a"), pauseNext).Rescue(pauseClean), (*tasks.Workflow).Cancel, " | clean | clean cancelled"},
		"revoke":       {tasks.Chain(pauseWork.S("a"), pauseNext).Rescue(pauseClean), (*tasks.Workflow).Revoke, " |  | revoked"},
		"retry":        {tasks.Chain(pauseWork.S("again", tasks.MaxRetry(3)), pauseNext), (*tasks.Workflow).Resume, " | work next | again!"},
		"failure":      {pauseWork.S("fail").Rescue(pauseClean), (*tasks.Workflow).Resume, " | clean | clean error"},
		"delay":        {tasks.Chain(tasks.Chain(pauseWork.S("a"), pauseNext, tasks.In(time.Minute)), pauseNext), (*tasks.Workflow).Resume, " | next next | a!!"},
		"plan":         {tasks.Chain(pausePlan.S("a"), pauseNext), (*tasks.Workflow).Resume, " | next next | a!!"},
		"fairness key": {tasks.Chain(pauseWork.S("a"), pauseNext), (*tasks.Workflow).Resume, " | next | a!"},
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
					} else if err := c.Workflow(tasks.InfoFrom(ctx).Workflow).Pause(ctx); err != nil {
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
			run := testutil.Must(tc.sig.Send(ctx, f.Client(), opts...))(t)
			f.Drain()
			got := strings.Join(ran, " ") + " | "
			ran = nil
			if tc.then != nil {
				wantPaused(t, f, run, true)
				testutil.Ok(t, tc.then(&run.Workflow, ctx))
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
func wantPaused(t *testing.T, f *taskstest.Fleet, run *tasks.Run[string], want bool) {
	t.Helper()
	d, err := run.Detail(t.Context())
	if err != nil || d.Paused != want || d.Progress.Paused != want {
		t.Errorf("detail: got %v %v, %v, want %v", d.Paused, d.Progress.Paused, err, want)
	}
	if waits := slices.ContainsFunc(d.Nodes, func(n tasktype.Node) bool { return n.Waits == "the workflow is paused" }); waits != want {
		t.Errorf("nodes that wait for the end of the pause: got %v, want %v", waits, want)
	}
	list, _, err := f.Client().Inspect().Workflows(t.Context(), tasktype.WorkflowFilter{})
	if err != nil || len(list) != 1 || list[0].Paused != want {
		t.Errorf("list: got %+v, %v, want paused %v", list, err, want)
	}
}

func TestErrorsOfChanges(t *testing.T) {
	t.Parallel()
	mux := tasks.NewMux()
	tasks.Handle(mux, pauseNext, func(_ context.Context, in string) (string, error) { return in, nil })
	f := taskstest.New(t, mux)
	c, ctx := f.Client(), t.Context()
	send := func() *tasks.Run[string] {
		run := testutil.Must(pauseNext.S("a").Send(ctx, c, tasks.In(time.Hour)))(t)
		return run
	}
	changes := map[string]func(*tasks.Workflow, context.Context) error{"pause": (*tasks.Workflow).Pause, "resume": (*tasks.Workflow).Resume}
	want := func(name, id string, want error) {
		t.Helper()
		for verb, change := range changes {
			for range 2 {
				if err := change(c.Workflow(id), ctx); !errors.Is(err, want) || (err == nil) != (want == nil) {
					t.Errorf("%s %s: got %v, want %v", verb, name, err, want)
				}
			}
		}
	}
	running := send()
	want("running workflow", running.ID(), nil)
	changes["cancel"] = (*tasks.Workflow).Cancel
	changes["retry"] = func(w *tasks.Workflow, ctx context.Context) error { return w.Retry(ctx) }
	want("unknown workflow", "none", tasks.ErrNotFound)
	revoked := send()
	testutil.Ok(t, revoked.Revoke(ctx))
	want("revoked workflow", revoked.ID(), tasks.ErrRevoked)
	ended := testutil.Must(pauseNext.S("a").Send(ctx, c))(t)
	testutil.Must(ended.Wait(ctx))(t)
	want("ended workflow", ended.ID(), tasks.ErrEnded)
	testutil.Ok(t, running.Pause(ctx))
	if err := running.Retry(ctx); !errors.Is(err, tasks.ErrRunning) {
		t.Errorf("retry: got %v, want %v", err, tasks.ErrRunning)
	}
	for range 2 {
		testutil.Ok(t, running.Cancel(ctx))
	}
}
