package ui

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"muster/tasks/tasktype"
)

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
