package tasktype

import "time"

// Worker is the state of a live worker. It is at most some seconds old.
type Worker struct {
	Name           string         `json:"name"`
	Host           string         `json:"host"`
	PID            int            `json:"pid"`             // process ID on the host
	Queues         map[string]int `json:"queues"`          // queues with their weights
	Concurrency    int            `json:"concurrency"`     // maximum number of concurrent tasks
	MaxConcurrency int            `json:"max_concurrency"` // upper limit of Concurrency
	Active         int            `json:"active"`          // number of running tasks
	Started        time.Time      `json:"started_at"`      // start time
	Tasks          []string       `json:"tasks"`           // names of the tasks with a handler, sorted
	Stats          WorkerStats    `json:"stats"`
	QueueLimits    map[string]int `json:"queue_limits,omitempty"` // concurrency limits of queues, if lower than Concurrency
	Release        string         `json:"release,omitempty"`      // version of the program; empty if not configured
	Memory         uint64         `json:"memory_bytes,omitempty"` // memory obtained from the system by the Go runtime of the process
}

// WorkerStats counts the work of a worker since its start.
type WorkerStats struct {
	Begun     int64 `json:"begun"`     // attempts
	Succeeded int64 `json:"succeeded"` // nodes that succeeded
	Failed    int64 `json:"failed"`    // nodes that failed permanently
	Retried   int64 `json:"retried"`   // failed attempts that are retried
	Recovered int64 `json:"recovered"` // nodes of dead workers that it requeued
}

// Pong is the response of a worker to a ping.
type Pong struct {
	Worker   string        `json:"worker"`
	Answered bool          `json:"answered"`           // whether it responded in time
	After    time.Duration `json:"after_ns,omitempty"` // response time; 0 without a response
}
