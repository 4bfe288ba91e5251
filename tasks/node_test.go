package tasks_test

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

var (
	nodeAdd   = tasks.New[int, int]("node.add")
	nodeList  = tasks.New[int, []int]("node.list")
	nodeSum   = tasks.New[[]int, int]("node.sum")
	nodeWords = tasks.New[string, int]("node.words")
	nodeShaky = tasks.New[string, int]("node.shaky", tasks.MaxRetry(5), tasks.ConstantBackoff(0))
)

// nodeFleet has tasks that succeed, and one that fails in each of its attempts.
func nodeFleet(t *testing.T) *taskstest.Fleet {
	t.Helper()
	mux := tasks.NewMux()
	tasks.Handle(mux, nodeAdd, func(_ context.Context, n int) (int, error) { return n + 1, nil })
	tasks.Handle(mux, nodeList, func(_ context.Context, n int) ([]int, error) { return []int{n, 2 * n}, nil })
	tasks.Handle(mux, nodeSum, func(_ context.Context, ns []int) (int, error) { return len(ns), nil })
	tasks.Handle(mux, nodeWords, func(_ context.Context, s string) (int, error) { return len(s), nil })
	tries := 0
	tasks.Handle(mux, nodeShaky, func(context.Context, string) (int, error) {
		tries++
		return 0, tasks.WithCode("odd", fmt.Errorf("attempt %d:\n%s", tries, strings.Repeat("x", 1000)))
	})
	return taskstest.New(t, mux)
}

// wantInput checks the displayed input of a node.
func wantInput(t *testing.T, c *tasks.Client, id, node, want string) tasktype.NodeDetail {
	t.Helper()
	d, err := c.Node(t.Context(), id, node)
	if err != nil || string(d.Input) != want {
		t.Errorf("node %s: got input %.200s, %v, want %.200s", node, d.Input, err, want)
	}
	return d
}

func TestNodeHasItsInput(t *testing.T) {
	t.Parallel()
	f := nodeFleet(t)
	run, err := tasks.Chord(tasks.Map(nodeList.S(4), nodeAdd), nodeSum).Send(t.Context(), f.Client(), tasks.Headers(map[string]string{"a": "b"}))
	testutil.Ok(t, err)
	wantInput(t, f.Client(), run.ID(), "0", "4")
	nodes, err := f.Client().Nodes(t.Context(), run.ID())
	testutil.Ok(t, err)
	last := nodes[len(nodes)-1].ID
	wantInput(t, f.Client(), run.ID(), last, "") // it waits for others
	f.Drain()
	wantInput(t, f.Client(), run.ID(), "0", "4")
	wantInput(t, f.Client(), run.ID(), "1.1", "8")
	d := wantInput(t, f.Client(), run.ID(), last, "[5,9]")
	if d.Status != tasktype.Success || d.Task != nodeSum.Name() || d.Headers["a"] != "b" || d.Attempts != 1 || d.Ended.IsZero() {
		t.Errorf("got %+v", d)
	}
	for node, want := range map[string]error{"99": tasks.ErrNoNode, "1.2": tasks.ErrNoNode, "0.1": tasks.ErrNoNode, "odd": tasks.ErrNoNode, "0:1": tasks.ErrNoNode} {
		if _, err := f.Client().Node(t.Context(), run.ID(), node); !errors.Is(err, want) {
			t.Errorf("node %s: got %v, want %v", node, err, want)
		}
	}
	if _, err := f.Client().Node(t.Context(), "none", "0"); !errors.Is(err, tasks.ErrUnknown) {
		t.Errorf("got %v, want %v", err, tasks.ErrUnknown)
	}
}

// Large inputs are kept of failed nodes only.
func TestFailedNodeKeepsItsInputAndItsAttempts(t *testing.T) {
	t.Parallel()
	f := nodeFleet(t)
	large := strings.Repeat("y", 10_000)
	run, err := tasks.Group(nodeShaky.S(large), nodeWords.S(large)).Send(t.Context(), f.Client())
	testutil.Ok(t, err)
	wantInput(t, f.Client(), run.ID(), "0", `"`+large+`"`)
	f.Drain()
	d := wantInput(t, f.Client(), run.ID(), "0", `"`+large+`"`)
	if d.Status != tasktype.Failed || d.Failure == nil || d.Failure.Attempts != 6 {
		t.Errorf("got %+v", d.Node)
	}
	var got []string
	for _, a := range d.Tried {
		head, _, _ := strings.Cut(a.Message, "\n")
		got = append(got, fmt.Sprint(a.Attempt, " ", head, " ", len(a.Message), " ", a.Code, " ", time.Since(a.Started).Abs() < time.Hour && !a.Ended.Before(a.Started) && a.Worker != ""))
	}
	if want := []string{"1 attempt 1: 300 odd true", "2 attempt 2: 300 odd true", "3 attempt 3: 300 odd true", "4 attempt 4: 300 odd true", "5 attempt 5: 300 odd true"}; fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("got the attempts %q, want %q", got, want)
	}
	wantInput(t, f.Client(), run.ID(), "1", "")
}
