package taskstest_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"muster/internal/testutil"
	"muster/tasks"
	"muster/tasks/tasktype"
)

// A new workflow runs all tasks of the old one, or a node with what depends on it and has no success. The old one stays as it is.
func TestRunAgain(t *testing.T) {
	t.Parallel()
	chain := tasks.Chain(tasks.Chain(retryWork.S("a"), retryNext), retryNext)
	group := tasks.Chord(tasks.Group(retryWork.S("a"), retryWork.S("bad")), retryJoin)
	plan := tasks.Chain(retryPlan.S("b"), retryNext)
	for name, tc := range map[string]struct {
		sig   tasks.Signature[string]
		fixed bool // in the first run too
		opts  []tasks.RetryOption
		want  string // the value, and the tasks that ran
		done  int    // tasks of the new workflow
	}{
		"chain":                {sig: chain, want: "a!!: work a, next a, next a!", done: 3},
		"end of a chain":       {sig: chain, opts: []tasks.RetryOption{tasks.FromNode("2")}, want: "a!!: next a!", done: 3},
		"middle of a chain":    {sig: chain, opts: []tasks.RetryOption{tasks.FromNode("1")}, want: "a!!: next a, next a!", done: 3},
		"input":                {sig: chain, opts: []tasks.RetryOption{retryWork.RetryInput("0", "b")}, want: "b!!: work b, next b, next b!", done: 3},
		"failure":              {sig: group, want: "a bad: work a, work bad, join", done: 3},
		"node beside failure":  {sig: group, opts: []tasks.RetryOption{tasks.FromNode("0")}, want: "a bad: work a, work bad, join", done: 3},
		"node without failure": {sig: group, fixed: true, opts: []tasks.RetryOption{tasks.FromNode("1")}, want: "a bad: work bad, join", done: 3},
		"map":                  {sig: tasks.Chord(tasks.Map(retryList.S("a b"), retryWork), retryJoin), want: "a b: list, work a, work b, join", done: 4},
		"member of a map":      {sig: tasks.Chord(tasks.Map(retryList.S("a b"), retryWork), retryJoin), opts: []tasks.RetryOption{tasks.FromNode("1.1"), retryWork.RetryInput("1.1", "b")}, want: "a b: work b, join", done: 4},
		"plan":                 {sig: plan, want: "fine b!: plan, work fine, work b, join, next fine b", done: 5},
		"node of a plan":       {sig: plan, opts: []tasks.RetryOption{tasks.FromNode("0:1")}, want: "fine b!: work b, join, next fine b", done: 5},
		"after a plan":         {sig: plan, opts: []tasks.RetryOption{tasks.FromNode("1")}, want: "fine b!: next fine b", done: 5},
		"rescue":               {sig: retryWork.S("bad").Rescue(retryNote), want: "bad: work bad", done: 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			fixed := tc.fixed
			f, ran := retryFleet(t, &fixed)
			run, err := tc.sig.Send(t.Context(), f.Client(), tasks.Name("named"), tasks.Labels(map[string]string{"k": "v"}), tasks.In(time.Hour))
			testutil.Ok(t, err)
			f.Drain()
			before := testutil.Must(run.Detail(t.Context()))(t)
			f.Advance(time.Minute)
			for range 2 { // the second time from the copy
				*ran, fixed = nil, true
				again := testutil.Must(run.RunAgain(t.Context(), tc.opts...))(t)
				began := f.Now()
				f.Drain()
				got, err := again.Wait(t.Context())
				if got += ": " + strings.Join(*ran, ", "); err != nil || got != tc.want {
					t.Errorf("got %q, %v, want %q", got, err, tc.want)
				}
				d, err := again.Detail(t.Context())
				if err != nil || d.Origin != run.ID() || d.Name != "named" || d.Labels["k"] != "v" || d.Created.Before(began) || d.State != tasktype.WorkflowSucceeded ||
					d.Progress.Total != tc.done || d.Progress.Done != tc.done {
					t.Errorf("got %+v, %v", d, err)
				}
				for _, n := range d.Nodes {
					if !n.Ended.IsZero() && n.Ended.Before(began) || n.Status == tasktype.Success && n.Runs > 1 {
						t.Errorf("node %s: got %+v, want times after the send", n.ID, n)
					}
				}
				list, _, err := f.Client().Inspect().Workflows(t.Context(), tasktype.WorkflowFilter{Origin: run.ID()})
				if err != nil || len(list) != 1 || list[0].ID != again.ID() || list[0].Origin != run.ID() || len(list[0].Labels) != 1 {
					t.Errorf("got the listing %+v, %v", list, err)
				}
				if after, err := run.Detail(t.Context()); err != nil || after.Progress != before.Progress || after.State != before.State {
					t.Errorf("the old workflow has changed: got %+v, %v, want %+v", after, err, before)
				}
				if name != "chain" {
					break
				}
				run, before = again, d
			}
		})
	}
}

// Steps of tasks that run again are not copied; the values of the others are.
func TestRunAgainHasNoSteps(t *testing.T) {
	t.Parallel()
	f, ran := stepped(t, 0)
	run := testutil.Must(tasks.After(stepsTask.S("a"), stepsTask.S("b")).Send(t.Context(), f.Client()))(t)
	f.Drain()
	again := testutil.Must(run.RunAgain(t.Context(), tasks.FromNode("1")))(t)
	f.Drain()
	if got, err := again.Wait(t.Context()); err != nil || !slices.Equal(got, []int{3, 3, 3}) {
		t.Errorf("got %v, %v after %v", got, err, ran)
	}
	if d, err := again.Node(t.Context(), "0"); err != nil || len(d.Steps) != 3 {
		t.Errorf("got %d steps of the node that did not run, %v, want 3", len(d.Steps), err)
	}
}

func TestRunAgainErrors(t *testing.T) {
	t.Parallel()
	fixed := false
	f, _ := retryFleet(t, &fixed)
	send := func(s tasks.Signature[string], opts ...tasks.SendOption) *tasks.Run[string] {
		run := testutil.Must(s.Send(t.Context(), f.Client(), opts...))(t)
		return run
	}
	done, large := send(retryPlan.S("bad"), tasks.ID("reused")), send(retryWork.S(strings.Repeat("x", 5000)))
	unplanned, revoked := send(tasks.Chain(retryWork.S("bad"), retryPlan)), send(retryWork.S("fine"))
	testutil.Ok(t, revoked.Revoke(t.Context()))
	f.Drain()
	running := send(retryWork.S("fine"))
	for name, tc := range map[string]struct {
		run  *tasks.Run[string]
		opts []tasks.RetryOption
		want error
		text string
	}{
		"unknown":                {run: tasks.Attach[string](f.Client(), "none"), want: tasks.ErrNotFound},
		"running":                {run: running, want: tasks.ErrRunning},
		"no such node":           {run: done, opts: []tasks.RetryOption{tasks.FromNode("7")}, want: tasks.ErrInvalid, text: "the workflow has no task 7"},
		"no node":                {run: done, opts: []tasks.RetryOption{tasks.FromNode("x")}, want: tasks.ErrInvalid, text: "the workflow has no task x"},
		"plan that did not run":  {run: unplanned, opts: []tasks.RetryOption{tasks.FromNode("1:0")}, want: tasks.ErrInvalid, text: "or it did not run"},
		"input of another node":  {run: done, opts: []tasks.RetryOption{retryWork.RetryInput("0", "x")}, want: tasks.ErrInvalid},
		"input that was deleted": {run: large, want: tasks.ErrInvalid, text: "give it with RetryInput"},
		"revoked":                {run: revoked},
		"input given again":      {run: large, opts: []tasks.RetryOption{retryWork.RetryInput("0", "x")}},
		"reused id":              {run: done},
	} {
		if _, err := tc.run.RunAgain(t.Context(), tc.opts...); !errors.Is(err, tc.want) || err != nil && !strings.Contains(err.Error(), tc.text) {
			t.Errorf("%s: got %v, want %v %s", name, err, tc.want, tc.text)
		}
	}
	if err := done.Retry(t.Context(), tasks.FromNode("0")); !errors.Is(err, tasks.ErrInvalid) {
		t.Errorf("FromNode in Retry: got %v", err)
	}
	testutil.Ok(t, done.Delete(t.Context()))
	if _, err := done.RunAgain(t.Context()); !errors.Is(err, tasks.ErrNotFound) {
		t.Errorf("deleted: got %v", err)
	}
}
