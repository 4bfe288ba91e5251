package tasks_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

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
	if err != nil {
		t.Fatal(err)
	}
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
