package main

import (
	"strings"
	"testing"
	"time"

	"muster/tasks/tasktype"
)

func TestListingsOfTheIndexFitATerminal(t *testing.T) {
	t.Parallel()
	begun := time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC)
	long := strings.Repeat("long.ñame\t\n", 8)
	terminal, out := terminalOf(100)
	flows := newTable(terminal, workflowColumns...)
	flows.row(workflowRow(tasktype.Workflow{ID: strings.Repeat("0", 24), Name: long, State: tasktype.WorkflowSucceeded,
		Created: begun, Ended: begun.Add(99*time.Hour + 59*time.Minute + 58*time.Second)})...)
	rates := newTable(terminal, rateColumns...)
	rates.row(rateRow(tasktype.RatePoint{Time: begun, Queue: long, Task: long, Succeeded: 1e6, Failed: 1e5, Busy: 99 * time.Hour})...)
	for _, table := range []*table{flows, rates} {
		if err := table.flush(); err != nil {
			t.Fatal(err)
		}
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
