package tasks_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"muster/internal/testutil"
	"muster/tasks"
	"muster/tasks/internal/canvas"
	"muster/tasks/redistest"
	"muster/tasks/tasktype"
)

// propWorld counts the runs of each node.
type propWorld struct {
	mu   sync.Mutex                // guards runs
	runs map[string]map[string]int // workflow, "task node"
}

func (p *propWorld) ran(ctx context.Context) {
	i := tasks.InfoFrom(ctx)
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.runs[i.Workflow] == nil {
		p.runs[i.Workflow] = map[string]int{}
	}
	p.runs[i.Workflow][i.Task+" "+i.Node]++
}

func (p *propWorld) mux() *tasks.Mux {
	m := tasks.NewMux()
	m.Use(func(ctx context.Context, _ tasktype.Info, next func(context.Context) error) error {
		p.ran(ctx)
		return next(ctx)
	})
	canvas.Handle(m, nil, nil)
	return m
}

// choices makes the choices of a canvas.
type choices struct{ t *rapid.T }

func (c choices) Int(lo, hi int, what string) int { return rapid.IntRange(lo, hi).Draw(c.t, what) }

// Any combination of combinators has the value of its plain evaluation, and every task runs as often as the
// evaluation calls it: once if it is reached, and never after a failure. If a group ends with its first failure, or
// the workflow is revoked, timing decides which tasks still run; each node ends anyway, and runs at most once.
func TestAnyCanvasAgreesWithItsReference(t *testing.T) {
	t.Parallel()
	w := &world{client: tasks.NewClient(redistest.New(t))}
	prop := &propWorld{runs: map[string]map[string]int{}}
	worker, err := tasks.NewWorker(w.client, prop.mux(), tasks.WorkerConfig{Grace: time.Second})
	testutil.Ok(t, err)
	during(t, worker.Run)
	rapid.Check(t, func(rt *rapid.T) {
		s := canvas.Draw(choices{rt}, 2)
		stop := rapid.IntRange(-20, 9).Draw(rt, "revoked after so many tasks")
		want := canvas.NewRuns()
		res := canvas.Evaluate(s, want)
		ctx, cancel := context.WithTimeout(t.Context(), waitLimit)
		defer cancel()
		run, err := s.Signature().Send(ctx, w.client)
		if err != nil {
			rt.Fatalf("send: %v", err)
		}
		defer func() {
			if rt.Failed() {
				raw, _ := json.Marshal(s)
				rt.Logf("%s", raw)
			}
		}()
		revoked := false
		for p, err := range run.Watch(ctx) {
			if err != nil {
				rt.Fatalf("%v at %+v\n%s", err, p, tree(t, w, run.ID()))
			}
			if stop >= 0 && p.Done >= stop && !revoked {
				revoked = true
				if err := run.Revoke(ctx); err != nil {
					rt.Fatal(err)
				}
			}
		}
		got, err := run.Wait(ctx)
		nodes, nerr := w.client.Nodes(ctx, run.ID())
		if nerr != nil {
			rt.Fatal(nerr)
		}
		for _, n := range nodes {
			if !n.Status.Terminal() {
				rt.Errorf("node %s is %s", n.ID, n.Status)
			}
		}
		loose := revoked || *want.Fast
		var f *tasks.Failure
		failed := errors.As(err, &f)
		if err != nil && !failed {
			rt.Fatal(err)
		}
		if f == nil {
			f = &tasks.Failure{}
		}
		if diff := res.Differs(got, failed, f.Message); diff != "" && !loose {
			rt.Error(diff)
		}
		prop.mu.Lock()
		defer prop.mu.Unlock()
		have := map[string]int{}
		for node, n := range prop.runs[run.ID()] {
			task, _, _ := strings.Cut(node, " ")
			have[task] += n
			if n > 1 && task != "p.leaf" {
				rt.Errorf("node %s ran %d times", node, n)
			}
		}
		delete(prop.runs, run.ID())
		if loose {
			return
		}
		for _, diff := range want.Differs(have) {
			rt.Errorf("%s\n%s", diff, tree(t, w, run.ID()))
		}
	})
}

// AsCompleted, Members, Wait and ValueOf agree with the plain evaluation of any canvas whose result is a list. If a group ends
// with its first failure, or the workflow is revoked, timing decides which members have a value; each comes once anyway.
func TestMembersOfAnyCanvas(t *testing.T) {
	t.Parallel()
	client, _ := startMux(t, redistest.New(t), func(m *tasks.Mux) { canvas.Handle(m, nil, nil) }, func(c *tasks.WorkerConfig) { c.Grace = time.Second })
	rapid.Check(t, func(rt *rapid.T) {
		s, runs := canvas.DrawList(choices{rt}, 1), canvas.NewRuns()
		all := canvas.EvaluateAll(s, runs)
		nums, lists := s.Signatures()
		want := all[len(s.Defs)-1]
		ctx, cancel := context.WithTimeout(t.Context(), waitLimit)
		defer cancel()
		run, err := lists[len(s.Defs)-1].Send(ctx, client)
		if err != nil {
			rt.Fatalf("send: %v", err)
		}
		loose := *runs.Fast
		if rapid.IntRange(0, 3).Draw(rt, "revoked") == 0 {
			loose = true
			if err := run.Revoke(ctx); err != nil {
				rt.Fatal(err)
			}
		}
		agrees := func(what string, want canvas.Result, got any, value any, err error) {
			var f *tasks.Failure
			switch failed := errors.As(err, &f); {
			case err != nil && !failed:
				rt.Fatalf("%s: %v", what, err)
			case loose:
			case failed != want.Failed() || failed && !want.Causes[f.Message] || !failed && fmt.Sprint(got) != fmt.Sprint(value): // null is an empty list
				raw, _ := json.Marshal(s)
				rt.Errorf("%s: got %v, %v, want %v or one of %v\n%s", what, got, err, value, want.Causes, raw)
			}
		}
		members := map[int]bool{}
		for m, err := range tasks.AsCompleted(ctx, run) {
			if err != nil {
				if errors.As(err, new(*tasks.Failure)) && (loose || want.Failed()) {
					continue
				}
				rt.Fatal(err)
			}
			if members[m.Index] {
				rt.Errorf("member %d came twice", m.Index)
			}
			members[m.Index] = true
			switch {
			case m.Index < len(want.Members):
				var err error
				if m.Err != nil {
					err = m.Err
				}
				agrees(fmt.Sprint("member ", m.Index), want.Members[m.Index], m.Value, want.Members[m.Index].N, err)
			case !loose && !want.Failed() && (m.Err != nil || m.Value != want.List[m.Index]):
				rt.Errorf("got %+v, want %v", m, want.List)
			}
		}
		if err := run.WaitAll(ctx); err != nil {
			rt.Fatal(err)
		}
		values, done, err := tasks.Members(ctx, run)
		if err != nil && !errors.As(err, new(*tasks.Failure)) {
			rt.Fatal(err)
		}
		if !loose && (!want.Failed() || want.Members != nil) && (len(members) != len(want.List) || err != nil || len(values) != len(want.List)) {
			rt.Errorf("got members %v, %v, %v, want %v", members, values, err, want.List)
		}
		for i, ok := range done {
			if m := want.Members; !loose && i < len(m) && (ok == m[i].Failed() || ok && values[i] != m[i].N) {
				rt.Errorf("got members %v, %v, want %+v", values, done, m)
			}
		}
		got, err := run.Wait(ctx)
		agrees("list", want, got, want.List, err)
		for i, part := range nums {
			got, err := tasks.ValueOf(ctx, run, part)
			agrees("value of "+s.Defs[i].Kind, all[i], got, all[i].N, err)
		}
		for i, part := range lists {
			got, err := tasks.ValueOf(ctx, run, part)
			agrees("value of "+s.Defs[i].Kind, all[i], got, all[i].List, err)
		}
	})
}
