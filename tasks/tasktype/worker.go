package tasktype

import "time"

// Worker is a live worker, as it reported itself at most some seconds ago.
type Worker struct {
	Name           string         `json:"name"`
	Host           string         `json:"host"`
	PID            int            `json:"pid"`                    // of its process on the host
	Queues         map[string]int `json:"queues"`                 // queues that it takes tasks from, with their weights
	Concurrency    int            `json:"concurrency"`            // how many tasks it may run at once
	MaxConcurrency int            `json:"max_concurrency"`        // what Concurrency can be raised to
	Active         int            `json:"active"`                 // tasks that it runs
	Started        time.Time      `json:"started"`                // when it began to run
	Tasks          []string       `json:"tasks"`                  // names of the tasks that it has handlers for, sorted
	Stats          WorkerStats    `json:"stats"`                  // what it has done
	QueueLimits    map[string]int `json:"queue_limits,omitempty"` // most tasks at once of a queue, if that is less than Concurrency
	Release        string         `json:"release,omitempty"`      // version of its program; empty if it was not configured
	Memory         uint64         `json:"memory_bytes,omitempty"` // that the Go runtime of its process has of the system
}

// WorkerStats counts what a worker has done since it started.
type WorkerStats struct {
	Begun     int64 `json:"begun"`     // attempts
	Succeeded int64 `json:"succeeded"` // nodes
	Failed    int64 `json:"failed"`    // nodes whose last attempt failed
	Retried   int64 `json:"retried"`   // attempts that failed and are followed by another
	Recovered int64 `json:"recovered"` // nodes of dead workers that it returned to their queues
}

// Pong says whether and how fast a worker answered a ping.
type Pong struct {
	Worker   string        `json:"worker"`             // name
	Answered bool          `json:"answered"`           // whether it answered in time
	After    time.Duration `json:"after_ns,omitempty"` // how long its answer took; 0 when there was none
}
