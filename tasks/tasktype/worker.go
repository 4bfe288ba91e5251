package tasktype

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

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

// Queue is the state of a queue, including tasks sent by asynq's own client.
type Queue struct {
	Name     string        `json:"name"`
	Pending  int64         `json:"pending"`    // ready tasks
	Active   int64         `json:"active"`     // tasks that workers have
	Archived int64         `json:"archived"`   // asynq's own tasks archived by an operator or by asynq
	Asynq    int64         `json:"asynq"`      // asynq's own tasks in Pending, Active and Archived
	Latency  time.Duration `json:"latency_ns"` // time since a worker last took a task while some are pending; 0 without pending tasks
	Paused   bool          `json:"paused"`     // whether workers are prevented from taking tasks
	Workers  int           `json:"workers"`    // number of live workers of the queue

	Unhandled map[string]int64 `json:"unhandled,omitempty"` // number of tasks that wait for a worker with a handler, by name; not in Pending
}

// UnhandledTasks lists the tasks that wait for a worker with a handler, such as "mail.send (3), mail.sort (1)".
func (q Queue) UnhandledTasks() string {
	var out []string
	for _, name := range slices.Sorted(maps.Keys(q.Unhandled)) {
		out = append(out, fmt.Sprintf("%s (%d)", name, q.Unhandled[name]))
	}
	return strings.Join(out, ", ")
}

// Outbox is the size and delay of the outbox.
type Outbox struct {
	Entries int64         // nodes scheduled for later, and steps that workers repeat after the death of a process
	Overdue time.Duration // time since the earliest entry was due; 0 if none is due
}

// Measure is a quantity that workers store every minute. The values are kept for two hours.
type Measure string

// Measures.
const (
	PendingTasks Measure = "pending" // ready tasks, by queue
	ActiveTasks  Measure = "active"  // tasks that workers have, by queue
)

// HistoryFilter selects the series that tasks.Client.History returns.
type HistoryFilter struct {
	Measure Measure
	Names   []string  // queues, and "" for the sum over all; nil: the sum and each series that is not always 0
	Since   time.Time // starts with the minute of this time; zero: all retained values
	Until   time.Time // ends with the minute of this time; zero: now
}

// Series contains the values of a measure, of a queue.
type Series struct {
	Name   string   `json:"name"`   // name of the queue; empty for the sum over all
	Values []Sample `json:"values"` // by time, at most one per minute
}

// Sample is a value at a time.
type Sample struct {
	Time  time.Time `json:"time"` // start of the minute
	Value int64     `json:"value"`
}
