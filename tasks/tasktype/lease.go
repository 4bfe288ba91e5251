package tasktype

import (
	"encoding/json"
	"time"
)

// MaxLeases is the largest number of tasks that one call can lease.
const MaxLeases = 100

// LeaseRequest describes the tasks that a program leases.
type LeaseRequest struct {
	Queue string   // defaults to "default"
	Tasks []string // names
	Max   int      // tasks, up to MaxLeases; defaults to 1
	// Wait is how long to wait for the first task.
	Wait time.Duration
	// For is the time until the lease expires, unless the program extends it. Defaults to 30 s.
	For time.Duration
}

// LeasedTask is a task that a program runs.
type LeasedTask struct {
	Info
	Token string          `json:"token" doc:"token of the lease, a secret"` // with which the program completes the task
	Input json.RawMessage `json:"input"`
}
