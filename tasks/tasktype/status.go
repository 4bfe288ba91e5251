package tasktype

// Status is the state of a node of a workflow, or of the workflow itself: then it is that of the value it yields.
type Status string

// The states. The last four are terminal: nothing follows them.
const (
	Pending Status = "PENDING" // waits: for a worker, for its time, or for what comes before it
	Started Status = "STARTED" // runs
	Retry   Status = "RETRY"   // an attempt failed, and there will be another
	Success Status = "SUCCESS" // has its value
	Failed  Status = "FAILURE" // the last attempt failed
	Revoked Status = "REVOKED" // stopped by someone, or not begun before it expired
	Skipped Status = "SKIPPED" // never ran, because what it needs has failed or was revoked
)

// Terminal reports whether nothing follows s.
func (s Status) Terminal() bool {
	return s == Success || s == Failed || s == Revoked || s == Skipped
}

// Progress is how far a workflow is.
type Progress struct {
	Status     Status `json:"status"`      // of the value that the workflow yields
	Done       int    `json:"done"`        // tasks that are terminal
	Total      int    `json:"total"`       // tasks known so far; maps and plans add to it
	ChunksDone int    `json:"chunks_done"` // members of maps that are terminal
	Chunks     int    `json:"chunks"`      // members of maps known so far
	Ended      bool   `json:"ended"`       // all tasks are terminal, also those that the value does without
}
