package tasktype

import "time"

// Measure is a quantity that workers store every minute. The values are kept for 25 hours.
type Measure string

// Measures.
const (
	PendingTasks Measure = "pending" // ready tasks, by queue
	ActiveTasks  Measure = "active"  // tasks that workers have, by queue
	WorkerMemory Measure = "memory"  // memory in bytes as in [Worker], to the MiB, by worker
)

// HistoryFilter selects the series that tasks.Client.History returns.
type HistoryFilter struct {
	Measure Measure
	Names   []string  // queues or workers, and "" for the sum over all; nil: the sum and each series that is not always 0
	Since   time.Time // starts with the minute of this time; zero: all retained values
	Until   time.Time // ends with the minute of this time; zero: now
}

// Series contains the values of a measure, of a queue or a worker.
type Series struct {
	Name   string   `json:"name"`   // name of the queue or worker; empty for the sum over all
	Values []Sample `json:"values"` // by time, at most one per minute
}

// Sample is a value at a time.
type Sample struct {
	Time  time.Time `json:"time"` // start of the minute
	Value int64     `json:"value"`
}
