package main

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"muster/internal/testutil"
	"muster/tasks/api"
	"muster/tasks/tasktype"
)

func TestListingsOfTheIndexFitATerminal(t *testing.T) {
	t.Parallel()
	begun := time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC)
	long := strings.Repeat("long.ñame\t\n", 8)
	terminal, out := terminalOf(100)
	flows := newTable(terminal, workflowColumns)
	flows.row(workflowRow(api.ListedWorkflow{Workflow: api.Workflow{ID: strings.Repeat("0", 24), Name: long, State: "success",
		CreatedAt: begun, EndedAt: begun.Add(99*time.Hour + 59*time.Minute + 58*time.Second)}})...)
	rates := newTable(terminal, rateColumns)
	rates.row(rateRow(tasktype.RatePoint{Time: begun, Queue: long, Task: long, Succeeded: 1e6, Failed: 1e5, Busy: 99 * time.Hour})...)
	for _, table := range []*table{flows, rates} {
		testutil.Ok(t, table.flush())
	}
	lines := strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n")
	if len(lines) != 4 {
		t.Errorf("got %d lines, want 4:\n%s", len(lines), out.String())
	}
	for _, line := range lines {
		if n := widthOf(line); n > 100 {
			t.Errorf("got %d characters, want at most 100: %q", n, line)
		}
	}
}

// A node within another one is below it. Of many nodes with the same name and state, the first are printed with the number
// of the others; those in another state are all printed.
func TestNodesOfAWorkflowAreIndentedAndCounted(t *testing.T) {
	t.Parallel()
	at := time.UnixMilli(1_000_000).UTC()
	nodes := []api.Node{
		{ID: "0", Task: "fetch", Status: tasktype.Success, StartedAt: at, EndedAt: at.Add(120 * time.Millisecond)},
		{ID: "1", Task: "(map)", Status: tasktype.Started, Needs: []string{"0"}},
		{ID: "2", Task: "merge", Status: tasktype.Pending, Needs: []string{"1"}},
	}
	for i := range 1000 {
		nodes = append(nodes, api.Node{ID: fmt.Sprintf("1:%d", i), Task: "check", Within: "1", Status: tasktype.Success})
	}
	nodes[700].Status, nodes[700].Attempts, nodes[700].Failure = tasktype.Failed, 3, &tasktype.Failure{Message: "status\n503"}
	var out bytes.Buffer
	testutil.Ok(t, writeNodes(&out, nodes, false))
	want := strings.Join([]string{
		"TASK     NODE      STATUS   TOOK   AFTER  ",
		"fetch    0         SUCCESS  120ms  -      ",
		"(map)    1         STARTED  -      0      ",
		"  check  1:0       SUCCESS  -      -      ",
		"  check  1:1       SUCCESS  -      -      ",
		"  check  1:2       SUCCESS  -      -      ",
		"  check  1:3       SUCCESS  -      -      ",
		"  check  1:4       SUCCESS  -      -      ",
		"  check  1:697     FAILURE  -      -      3 attempts, status?503",
		"  check  994 more  SUCCESS                ",
		"merge    2         PENDING  -      1      ",
		"",
	}, "\n")
	if out.String() != want {
		t.Errorf("got\n%s\nwant\n%s", out.String(), want)
	}
	out.Reset()
	if err := writeNodes(&out, nodes, true); err != nil || strings.Count(out.String(), "\n") != 1004 {
		t.Errorf("all: got %d lines, %v, want 1004", strings.Count(out.String(), "\n"), err)
	}
}
