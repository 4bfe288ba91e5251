package taskstest_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

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
		"errors": {tasks.OnError(retryWork.S("bad", tasks.LinkError(retryNote)), retryNote), "bad: work bad"},
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
			run, err := tc.sig.Send(t.Context(), f.Client())
			testutil.Ok(t, err)
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
			got, err := run.Wait(t.Context())
			testutil.Ok(t, err)
			if name != "chain" && name != "handled failure" {
				slices.Sort(*ran)
				if i := slices.Index(*ran, "join"); i >= 0 && name != "members over outcomes" {
					*ran = append(slices.Delete(*ran, i, i+1), "join")
				}
			}
			if got += ": " + strings.Join(*ran, ", "); got != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
			if err := run.Retry(t.Context()); !errors.Is(err, tasks.ErrSucceeded) {
				t.Errorf("retry of a success: got %v, want %v", err, tasks.ErrSucceeded)
			}
		})
	}
}

func TestRetryWithAnotherInput(t *testing.T) {
	t.Parallel()
	fixed := false
	f, ran := retryFleet(t, &fixed)
	run, err := tasks.Chord(tasks.Group(retryWork.S("fine"), retryWork.S("bad")), retryJoin).Send(t.Context(), f.Client())
	testutil.Ok(t, err)
	f.Drain()
	for want, opt := range map[string]tasks.RetryOption{
		"node 1: it is of task retry.work, not retry.next": tasks.RetryInput(retryNext, "1", "x"),
		"node 0: the node does not run again":              tasks.RetryInput(retryWork, "0", "x"),
		"node 9: it does not exist":                        tasks.RetryInput(retryWork, "9", "x"),
		`node id "x": expected an index`:                   tasks.RetryInputJSON("x", []byte("1")),
		"0 nodes of task retry.next have failed":           tasks.RetryInput(retryNext, "", "x"),
		"the node is missing":                              tasks.RetryInputJSON("", []byte("1")),
		"node 1: it is not JSON":                           tasks.RetryInputJSON("1", []byte("{")),
		"node 1: it has 16777219 bytes":                    tasks.RetryInputJSON("1", []byte(`"`+strings.Repeat("x", 16<<20+1)+`"`)),
	} {
		if err := run.Retry(t.Context(), opt); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %.200v, want %s", err, want)
		}
	}
	*ran = nil
	testutil.Ok(t, run.Retry(t.Context(), tasks.RetryInput(retryWork, "", "good")))
	d, err := f.Client().Node(t.Context(), run.ID(), "1")
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
		"task":       tasks.RetryInput(add, "0", tasks.Pair[int, int]{First: 1, Second: 10}),
		"bound task": tasks.RetryInput(bound, "0", 1),
		"JSON":       tasks.RetryInputJSON("0", []byte(`{"second": 10, "first": 1}`)),
	} {
		f := taskstest.New(t, mux)
		run, err := bound.S(-1).Send(t.Context(), f.Client())
		testutil.Ok(t, err)
		f.Drain()
		other := tasks.RetryInput(add, "0", tasks.Pair[int, int]{First: 1, Second: 2})
		if err := run.Retry(t.Context(), other); !errors.Is(err, tasks.ErrRetryInput) {
			t.Fatalf("another second half: got %v, want %v", err, tasks.ErrRetryInput)
		}
		testutil.Ok(t, run.Retry(t.Context(), opt))
		if n, err := run.Wait(t.Context()); err != nil || n != 11 {
			t.Errorf("%s: got %d, %v, want 11", name, n, err)
		}
	}
}
