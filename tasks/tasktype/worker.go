package tasktype

import "time"

// Worker is a live worker, as it last described itself: some seconds ago at most.
type Worker struct {
	Name           string         `json:"name"`
	Host           string         `json:"host"`
	PID            int            `json:"pid"`               // of its process on the host
	Queues         map[string]int `json:"queues"`            // that it takes from, with their weights
	Concurrency    int            `json:"concurrency"`       // how many tasks it may run at once
	MaxConcurrency int            `json:"max_concurrency"`   // what Concurrency can be raised to
	Active         int            `json:"active"`            // tasks that it runs
	Started        time.Time      `json:"started"`           // when it began to run
	Tasks          []string       `json:"tasks"`             // names that it has handlers for, sorted
	Stats          WorkerStats    `json:"stats"`             // what it has done
	Version        int            `json:"version,omitempty"` // of the stored form of workflows that it reads
}

// WorkerStats counts what a worker has done since it started.
type WorkerStats struct {
	Begun     int64 `json:"begun"`     // attempts
	Succeeded int64 `json:"succeeded"` // nodes
	Failed    int64 `json:"failed"`    // nodes, for good
	Retried   int64 `json:"retried"`   // attempts that failed, with another to follow
	Recovered int64 `json:"recovered"` // nodes of silent workers that it made runnable again
}

// Pong is the answer of a worker to a ping, or that there was none.
type Pong struct {
	Worker   string        `json:"worker"`             // name
	Answered bool          `json:"answered"`           // whether it answered in time
	After    time.Duration `json:"after_ns,omitempty"` // how long its answer took; 0 when there was none
}
