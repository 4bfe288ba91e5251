package ui

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"muster/internal/testutil"
	"muster/tasks"
	"muster/tasks/taskstest"
	"muster/tasks/tasktype"
)

// describe formats the boxes of a drawing by layer and row: "task×nodes <- dependencies".
func describe(d *drawing) []string {
	order := make([]int, len(d.Boxes))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int {
		return 1000*(d.Boxes[a].Layer-d.Boxes[b].Layer) + d.Boxes[a].Row - d.Boxes[b].Row
	})
	var out []string
	for _, i := range order {
		b := &d.Boxes[i]
		text := fmt.Sprintf("%d %s", b.Layer, b.Task)
		if b.Many() {
			text += fmt.Sprint("×", len(b.Nodes))
		}
		for k, need := range b.Needs {
			text += []string{" <- ", " "}[min(k, 1)] + d.Boxes[need].Task
		}
		out = append(out, text)
	}
	return out
}

// The boxes of a workflow follow its dependencies, group similar tasks and omit steps.
func TestBoxes(t *testing.T) {
	t.Parallel()
	list, one, two := tasks.New[int, []int]("list"), tasks.New[int, int]("one"), tasks.New[int, int]("two")
	total, planned := tasks.New[[]int, int]("total"), tasks.New[int, int]("planned")
	failing, instead := tasks.New[int, int]("failing"), tasks.New[tasks.Failure, int]("instead")
	mux := tasks.NewMux()
	tasks.Handle(mux, list, func(_ context.Context, n int) ([]int, error) { return make([]int, n), nil })
	for _, task := range []tasks.Task[int, int]{one, two} {
		tasks.Handle(mux, task, func(_ context.Context, n int) (int, error) { return n, nil })
	}
	tasks.Handle(mux, total, func(_ context.Context, ns []int) (int, error) { return len(ns), nil })
	tasks.Handle(mux, failing, func(context.Context, int) (int, error) { return 0, tasks.Permanent(errors.New("no")) })
	tasks.Handle(mux, instead, func(context.Context, tasks.Failure) (int, error) { return 0, nil })
	tasks.HandlePlan(mux, planned, func(_ context.Context, n int) (tasks.Signature[int], error) { return tasks.Chain(one.S(n), two), nil })
	f := taskstest.New(t, mux)
	chain := one.S(0)
	for range 29 {
		chain = tasks.Chain(chain, one)
	}
	var links []string
	for i := range 30 {
		links = append(links, strings.TrimSpace(fmt.Sprint(i, " one ", []string{"", "<- one"}[min(i, 1)])))
	}
	for name, c := range map[string]struct {
		s    tasks.Signature[int]
		want []string
	}{
		"map":          {tasks.Chord(tasks.Map(list.S(3), one), total), []string{"0 list", "1 one×3 <- list", "2 total <- one"}},
		"empty map":    {tasks.Chord(tasks.Map(list.S(0), one), total), []string{"0 list", "1 total <- list"}},
		"map of plans": {tasks.Chord(tasks.Map(list.S(3), planned), total), []string{"0 list", "1 planned×3 <- list", "2 one×3 <- planned", "3 two×3 <- one", "4 total <- two"}},
		"map of graphs": {tasks.Chord(tasks.MapFunc(list.S(3), func(v tasks.Signature[int]) tasks.Signature[int] {
			return tasks.Chord(tasks.Group(tasks.Chain(v, one), tasks.Chain(v, two)), total)
		}), total), []string{"0 list", "1 one×3 <- list", "1 two×3 <- list", "2 total×3 <- one two", "3 total <- total"}},
		"group":  {tasks.Chord(tasks.Group(one.S(1), one.S(2), two.S(3)), total), []string{"0 one×2", "0 two", "1 total <- one two"}},
		"rescue": {tasks.Chain(tasks.Chain(failing.S(1), two).Rescue(instead), one), []string{"0 failing", "1 two <- failing", "2 instead <- two", "3 one <- instead"}},
		"chain":  {chain, links},
		"each":   {tasks.Chord(tasks.Map(tasks.Map(tasks.Map(list.S(70), one), two), one), total), []string{"0 list", "1 one×70 <- list", "2 two×70 <- one", "3 one×70 <- two", "4 total <- one"}},
	} {
		run := sent(t, f, c.s)
		f.Drain()
		w := testutil.Must(run.Detail(t.Context()))(t)
		d := draw(w.Nodes, w.Created)
		if got := describe(d); !slices.Equal(got, c.want) {
			t.Errorf("%s: got %q, want %q", name, got, c.want)
		}
		shown := 0
		for _, b := range d.Boxes {
			shown += len(b.Nodes)
		}
		table := testutil.Must(newTable(d, url.Values{}))(t)
		if shown != w.Progress.Total || table.All != w.Progress.Total || w.Progress.Done != w.Progress.Total {
			t.Errorf("%s: got %d tasks in boxes, %d in the table and a progress of %d of %d, want equal numbers", name, shown, table.All, w.Progress.Done, w.Progress.Total)
		}
	}
}

// A workflow with very many layers has boxes for a limited number of layers.
func TestLongChainHasFewBoxes(t *testing.T) {
	t.Parallel()
	chain := []tasktype.Node{{ID: "0", Task: "a", Status: tasktype.Pending}}
	for i := range 9999 {
		chain = append(chain, tasktype.Node{ID: fmt.Sprint(i + 1), Task: "a", Status: tasktype.Pending, Needs: []string{fmt.Sprint(i)}})
	}
	if got := len(draw(chain, time.Unix(0, 0)).Boxes); got > 2*rounds+1 {
		t.Errorf("a chain of 10,000: got %d boxes, want at most %d", got, 2*rounds+1)
	}
}

func TestFailuresAreVisibleInGroupedBox(t *testing.T) {
	t.Parallel()
	b := &box{Task: "a", Nodes: make([]int, 500), Status: tasktype.Failed, States: []stateCount{{tasktype.Failed, 1}, {tasktype.Success, 499}}}
	got := segments(b)
	if len(got) != 2 || got[0].Status != tasktype.Success || got[1].W != leastSegment || got[0].W+got[1].W != boxWidth || got[1].X != got[0].W {
		t.Errorf("got %+v, want a failed part of %d", got, leastSegment)
	}
	if got := b.Summary(); got != "1 failed, 499 succeeded" {
		t.Errorf("got %q", got)
	}
}

func TestPhases(t *testing.T) {
	t.Parallel()
	at := func(s int) time.Time { return time.Unix(1000+int64(s), 0) }
	ready := tasktype.Node{Ready: at(1), Scheduled: at(1)}
	node := func(change func(*tasktype.Node)) tasktype.Node {
		n := ready
		change(&n)
		return n
	}
	for name, c := range map[string]struct {
		n    tasktype.Node
		want string
	}{
		"waiting for others":   {tasktype.Node{Status: tasktype.Pending}, "others 0-100"},
		"skipped":              {tasktype.Node{Status: tasktype.Skipped, Ended: at(5)}, ""},
		"revoked, never ready": {tasktype.Node{Status: tasktype.Revoked, Ended: at(5)}, ""},
		"revoked while ready":  {node(func(n *tasktype.Node) { n.Status, n.Ended = tasktype.Revoked, at(5) }), "others 0-1"},
		"waiting for a worker": {node(func(n *tasktype.Node) { n.Status = tasktype.Pending }), "others 0-1 worker 1-100"},
		"scheduled":            {node(func(n *tasktype.Node) { n.Status, n.Scheduled = tasktype.Pending, at(500) }), "others 0-1 time 1-100"},
		"delayed":              {node(func(n *tasktype.Node) { n.Status, n.Scheduled = tasktype.Pending, at(50) }), "others 0-1 time 1-50 worker 50-100"},
		"runs":                 {node(func(n *tasktype.Node) { n.Status, n.First, n.Started = tasktype.Started, at(3), at(3) }), "others 0-1 worker 1-3 running 3-100"},
		"ran":                  {node(func(n *tasktype.Node) { n.Status, n.First, n.Started, n.Ended = tasktype.Success, at(3), at(3), at(4) }), "others 0-1 worker 1-3 succeeded 3-4"},
		"external": {node(func(n *tasktype.Node) {
			n.Status, n.Open, n.First, n.Started, n.Opened = tasktype.Started, true, at(3), at(3), at(3)
		}),
			"others 0-1 worker 1-3 person 3-100"},
		"externally completed": {node(func(n *tasktype.Node) {
			n.Status, n.First, n.Started, n.Opened, n.Ended = tasktype.Success, at(3), at(3), at(3), at(9)
		}), "others 0-1 worker 1-3 person 3-9 succeeded 9-9"},
		"waiting for a retry": {node(func(n *tasktype.Node) { n.Status, n.First, n.Started, n.Due = tasktype.Retry, at(3), at(30), at(400) }),
			"others 0-1 worker 1-3 earlier 3-100"},
		"failed in the third attempt": {node(func(n *tasktype.Node) {
			n.Status, n.Attempts, n.First, n.Started, n.Ended = tasktype.Failed, 3, at(3), at(30), at(31)
		}),
			"others 0-1 worker 1-3 earlier 3-30 failed 30-31"},
		"returned early twice": {node(func(n *tasktype.Node) {
			n.Status, n.Attempts, n.Runs, n.First, n.Started, n.Ended = tasktype.Success, 1, 3, at(3), at(30), at(31)
		}),
			"others 0-1 worker 1-3 succeeded 3-31"},
		"failed before the first run": {node(func(n *tasktype.Node) { n.Status, n.Ended = tasktype.Failed, at(7) }), "others 0-1 worker 1-7 failed 7-7"},
		"revoked while running":       {node(func(n *tasktype.Node) { n.Status, n.First, n.Started, n.Ended = tasktype.Revoked, at(3), at(3), at(9) }), "others 0-1 worker 1-3 revoked 3-9"},
		"running plan": {node(func(n *tasktype.Node) {
			n.Status, n.First, n.Started, n.Planned = tasktype.Started, at(3), at(3), at(5)
		}), "others 0-1 worker 1-3 succeeded 3-5"},
	} {
		var got []string
		for _, p := range phases(&c.n, at(0), at(100)) {
			got = append(got, fmt.Sprintf("%s %.0f-%.0f", strings.TrimPrefix(string(p.kind), "t-"), p.from.Sub(at(0)).Seconds(), p.to.Sub(at(0)).Seconds()))
		}
		if strings.Join(got, " ") != c.want {
			t.Errorf("%s: got %q, want %q", name, got, c.want)
		}
	}
}

func TestTimeline(t *testing.T) {
	t.Parallel()
	at := func(s int) time.Time { return time.Unix(1000+int64(s), 0) }
	nodes := []tasktype.Node{{ID: "0", Task: "list", Status: tasktype.Success, Ready: at(0), Scheduled: at(0), First: at(1), Started: at(1), Ended: at(2)}}
	var members []string
	for i := range 500 {
		n := tasktype.Node{ID: fmt.Sprint("1.", i), Task: "one", Status: tasktype.Success, Needs: []string{"0"}, Ready: at(2), Scheduled: at(2), First: at(4), Started: at(4), Ended: at(6)}
		if i == 77 {
			n.Status = tasktype.Failed
		}
		nodes, members = append(nodes, n), append(members, n.ID)
	}
	nodes = append(nodes, tasktype.Node{ID: "2", Task: "total", Status: tasktype.Skipped, Needs: members, Ended: at(6)},
		tasktype.Node{ID: "3", Task: "after", Status: tasktype.Revoked, Needs: []string{"2"}, Ended: at(6)})
	line := newTimeline(draw(nodes, at(0)), at(6), at(60))
	if len(line.Rows) != 2 || line.Never != 2 || line.Whole != 6*time.Second {
		t.Fatalf("got %d rows, %d tasks that did not run, %s; want 2, 2 and 6 s", len(line.Rows), line.Never, line.Whole)
	}
	r := line.Rows[1]
	if r.Waited != 2*time.Second || r.Ran != 2*time.Second || len(r.Bars) > 2*columns {
		t.Errorf("got waited %s, ran %s, %d bars; want 2 s, 2 s and a column each", r.Waited, r.Ran, len(r.Bars))
	}
	if i := slices.IndexFunc(r.Bars, func(b bar) bool { return b.Kind == failed }); i < 0 || r.Bars[i].H < 3 {
		t.Errorf("got no visible failure in %+v", r.Bars)
	}
	if want := []kind{forWorker, succeeded, failed}; !slices.Equal(line.Kinds, want) {
		t.Errorf("key: got %v, want %v", line.Kinds, want)
	}
}
