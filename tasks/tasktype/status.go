package tasktype

// Status is the state of a node of a workflow. The status of a workflow is that of the node that yields its value.
type Status string

// The states. The last four are terminal: nothing follows them.
const (
	Pending Status = "PENDING" // waits for a worker, for its time, or for the nodes that it comes after
	Started Status = "STARTED" // is running, or waits for an answer from outside
	Retry   Status = "RETRY"   // an attempt failed, and another one follows
	Success Status = "SUCCESS" // has its value
	Failed  Status = "FAILURE" // the last attempt failed
	Revoked Status = "REVOKED" // was revoked, or expired before it started
	Skipped Status = "SKIPPED" // never ran, because a node that it needs has failed or was revoked
)

// Terminal reports whether s is a final state.
func (s Status) Terminal() bool {
	return s == Success || s == Failed || s == Revoked || s == Skipped
}

// Progress counts the tasks of a workflow.
type Progress struct {
	Status     Status `json:"status"`      // of the value that the workflow yields
	Done       int    `json:"done"`        // tasks that are terminal
	Total      int    `json:"total"`       // tasks known so far; maps and plans add to it
	ChunksDone int    `json:"chunks_done"` // members of maps that are terminal
	Chunks     int    `json:"chunks"`      // members of maps known so far
	Ended      bool   `json:"ended"`       // all tasks are terminal, also those that the value does not need
}
