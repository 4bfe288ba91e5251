package tasktype

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"
)

// WorkflowFilter selects the workflows that tasks.Client.Workflows lists. The zero value selects all.
//
// The time of a workflow is its end or, while it is running, the time when it was sent.
type WorkflowFilter struct {
	State    WorkflowState     // empty: all
	Name     string            // the whole name, or the name of the first or last task; empty: all
	Contains string            // a substring of the name or of the names of these tasks, case-insensitive; empty: all
	Labels   map[string]string // labels with their values, all of which the workflow must have; empty: all
	Origin   string            // ID of the workflow that they run again; empty: all
	After    time.Time         // the earliest time, inclusive; zero: no limit
	Before   time.Time         // the latest time, exclusive; zero: no limit
	Cursor   string            // cursor returned with the previous page; empty: the first page
	Limit    int               // workflows per page, at most 1,000; 0 means 100
}

// ParseLabels returns the labels in texts of the form KEY=VALUE; nil if there are none.
func ParseLabels(texts []string) (map[string]string, error) {
	var labels map[string]string
	for _, text := range texts {
		key, value, ok := strings.Cut(text, "=")
		if !ok || key == "" {
			return nil, fmt.Errorf("label %.50q must be KEY=VALUE", text)
		}
		if labels == nil {
			labels = map[string]string{}
		}
		labels[key] = value
	}
	return labels, nil
}

// RateFilter selects the counts that tasks.Client.Rates returns. The zero value selects all tasks, by minute.
type RateFilter struct {
	Queue string        // empty: all
	Task  string        // empty: all
	Since time.Time     // starts with the minute or hour of this time; zero: all retained counts
	Until time.Time     // ends with the minute or hour of this time; zero: now
	Step  time.Duration // [time.Minute] or [time.Hour]; 0 means a minute
}

// DurationFilter selects the durations that tasks.Client.Durations returns. The zero value selects all tasks in the
// last 24 hours.
type DurationFilter struct {
	Queue string    // empty: all
	Task  string    // empty: all
	Since time.Time // starts with the hour of this time; zero: all retained durations
}

// Status is the state of a node. The status of a workflow is the status of the node that produces its value.
type Status string

// States of nodes. The last four are terminal.
const (
	Pending Status = "PENDING" // waiting for a worker, for its time or for its dependencies
	Started Status = "STARTED" // running, or waiting for external completion
	Retry   Status = "RETRY"   // waiting for a retry after a failed attempt
	Success Status = "SUCCESS" // completed with a value
	Failed  Status = "FAILURE" // the last attempt failed
	Revoked Status = "REVOKED" // revoked, or expired before its start
	Skipped Status = "SKIPPED" // not run, because a dependency failed or was revoked
)

// Terminal reports whether s is a terminal state.
func (s Status) Terminal() bool {
	return s == Success || s == Failed || s == Revoked || s == Skipped
}

// Progress counts the tasks of a workflow.
type Progress struct {
	Status     Status    `json:"status"`               // status of the value of the workflow
	Done       int       `json:"done"`                 // number of terminal tasks
	Total      int       `json:"total"`                // number of tasks known so far; maps and plans add to it
	Percent    float64   `json:"percent"`              // of Total that is done, 0 to 100; a running task counts in part, see tasks.SetProgress
	ChunksDone int       `json:"chunks_done"`          // number of terminal members of maps
	Chunks     int       `json:"chunks"`               // number of members of maps known so far
	Ended      bool      `json:"ended"`                // all tasks are terminal, including those on which the value does not depend
	Paused     bool      `json:"paused"`               // no task begins until the workflow is resumed
	Queued     bool      `json:"queued"`               // no task begins until an earlier workflow with the same unique key has ended
	Deadline   time.Time `json:"deadline_at,omitzero"` // when the workflow is cancelled unless it has ended; zero for no deadline
}

// Left estimates the remaining time of a workflow from Percent and the time since it was sent. It returns 0 if that is unknown,
// because no progress was made, and for a workflow that has ended.
func (p Progress) Left(sinceSent time.Duration) time.Duration {
	if p.Percent <= 0 || p.Ended {
		return 0
	}
	return time.Duration(min(float64(sinceSent)*(100-p.Percent)/p.Percent, 1<<62))
}

// OpenToken is a node that waits for external completion. It does not contain the token; see
// [muster/tasks.Workflow.NewToken].
type OpenToken struct {
	Workflow string          `json:"workflow" doc:"ID"`
	Node     string          `json:"node" doc:"ID within the workflow"`
	Task     string          `json:"task"`
	Input    json.RawMessage `json:"input"`
	Attempt  int             `json:"attempt"` // 1 for the first
	Opened   time.Time       `json:"opened_at"`
	Deadline time.Time       `json:"deadline_at,omitzero"` // zero without one
	Choices  []Choice        `json:"choices,omitempty" doc:"results that its declaration offers"`
}

// Choice is a declared result of an external task.
type Choice struct {
	Label string          `json:"label"` // such as "Approve"
	Value json.RawMessage `json:"value"` // the result
}

// OpenTask is a task with nodes that wait for external completion.
type OpenTask struct {
	Task string `json:"task"` // the first 100 bytes of the name
	Open int64  `json:"open"` // number of waiting nodes
}
