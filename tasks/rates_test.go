package tasks_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"muster/internal/testutil"
	"muster/tasks"
	"muster/tasks/tasktype"
)

func TestFailuresAndDurationsOfATask(t *testing.T) {
	t.Parallel()
	f := nodeFleet(t)
	c := f.Client()
	var ids []string
	for i := range 3 {
		run := started(t, c, tasks.Group(nodeShaky.S("a"), nodeWords.S("b")))
		ids = append(ids, run.ID())
		f.Drain()
		if i == 1 {
			testutil.Ok(t, run.Forget(t.Context()))
		}
	}
	failed, err := c.Failures(t.Context(), nodeShaky.Name(), 10)
	if err != nil || len(failed) != 2 {
		t.Fatalf("got %+v, %v, want the two of workflows that are there", failed, err)
	}
	for i, id := range []string{ids[2], ids[0]} {
		if n := failed[i]; n.Workflow != id || n.Node != "0" || n.Failure.Code != "odd" || !strings.HasPrefix(n.Failure.Message, fmt.Sprint("attempt ", 18-12*i)) || n.Ended.IsZero() {
			t.Errorf("failure %d: got %+v, want the failure of workflow %s", i, n, id)
		}
	}
	if one, err := c.Failures(t.Context(), nodeShaky.Name(), 1); err != nil || len(one) != 1 || one[0].Workflow != ids[2] {
		t.Errorf("got %+v, %v, want the last", one, err)
	}
	if none, err := c.Failures(t.Context(), nodeWords.Name(), 10); err != nil || len(none) > 0 {
		t.Errorf("got %+v, %v, want none", none, err)
	}
	for task, want := range map[string]int64{nodeShaky.Name(): 18, nodeWords.Name(): 3, "none": 0} {
		points, err := c.Durations(t.Context(), tasktype.DurationFilter{Task: task, Since: time.Unix(0, 0)})
		var n int64
		for _, p := range points {
			n += p.Durations.Count()
		}
		if err != nil || n != want {
			t.Errorf("%s: got %d attempts in %+v, %v, want %d", task, n, points, err, want)
		}
	}
}
