package tasktype

import "time"

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
