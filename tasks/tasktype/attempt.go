package tasktype

import "time"

// Info describes a run of a handler.
type Info struct {
	Workflow string `json:"workflow" doc:"ID"`
	Node     string `json:"node" doc:"ID within the workflow"`
	Task     string `json:"task"`
	Queue    string `json:"-"` // queue that the worker took the task from
	Priority int    `json:"-"` // 0 to 255: tasks above 0 run before others in their queue; defaults to 0
	Attempt  int    `json:"attempt" doc:"1 for the first"`
	Worker   string `json:"-"` // name of the worker

	// Tick is the time of the tick of the schedule that sent the workflow, in UTC; zero for others.
	Tick time.Time `json:"-"`

	// Key is an idempotency key. All attempts of this node have the same key, and no other node has it, not even in a
	// later workflow with the same ID.
	Key string `json:"key" doc:"idempotency key: the same in all attempts, and of no other task"`
	// Headers are the headers of the workflow. They must not be modified.
	Headers map[string]string `json:"headers,omitempty"`
}

// An Attempt is a completed attempt to run a task.
type Attempt struct {
	Info
	Outcome Outcome
	Code    string        // failure code, predefined or chosen by the handler; empty without a failure
	Began   time.Time     // time of the call of the handler by the worker's clock; zero if it was not called
	Took    time.Duration // run time of the handler, or the time that the worker waited for it
}

// Outcome is the result of an attempt.
type Outcome string

// Outcomes of attempts.
const (
	OutcomeSuccess  Outcome = "success"  // the handler returned a value
	OutcomePlanned  Outcome = "planned"  // the handler returned a plan, which replaces the task
	OutcomeFailure  Outcome = "failure"  // the attempt failed and is not retried
	OutcomeRetry    Outcome = "retry"    // the attempt failed and is retried
	OutcomeAgain    Outcome = "again"    // the handler requested another call
	OutcomePending  Outcome = "pending"  // the task is completed externally
	OutcomeRevoked  Outcome = "revoked"  // revoked by a client or a failed group, or expired before its start
	OutcomeReturned Outcome = "returned" // the worker stopped; the task was requeued
	OutcomeLost     Outcome = "lost"     // the worker died; the task was requeued. Not reported to observers
)
