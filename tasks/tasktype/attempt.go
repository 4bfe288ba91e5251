package tasktype

import "time"

// Info is what a handler can know about its own run.
type Info struct {
	Workflow string // id of the workflow, which is the id of the job it does
	Node     string // id of the node in the workflow
	Task     string // name of the task
	Queue    string // queue that it was taken from
	Priority int    // in its queue: above 0, it goes before the others; 0 unless it was given one
	Attempt  int    // 1 for the first
	Worker   string // name of the worker that runs it

	// Key is the same for every attempt of this node and of no other: an idempotency key.
	Key string
	// Headers are those that the workflow was sent with. They must not be changed.
	Headers map[string]string
}

// Attempt is an attempt at a task that is over.
type Attempt struct {
	Info
	Outcome Outcome
	Code    string        // of the failure, one of the codes here or one that the handler chose; empty when there is none
	Began   time.Time     // when the handler was called, by the clock of the worker; zero if it was not called
	Took    time.Duration // how long the handler ran, or was waited for
}

// Outcome is how an attempt ended.
type Outcome string

// The outcomes of attempts.
const (
	OutcomeSuccess  Outcome = "success"  // the handler returned a value
	OutcomePlanned  Outcome = "planned"  // the handler returned a plan, which takes the place of the task
	OutcomeFailure  Outcome = "failure"  // there will be no other attempt
	OutcomeRetry    Outcome = "retry"    // it failed, and there will be another attempt
	OutcomeAgain    Outcome = "again"    // the handler asked for another call
	OutcomePending  Outcome = "pending"  // it waits for an answer from outside
	OutcomeRevoked  Outcome = "revoked"  // stopped by someone, or not begun before it expired
	OutcomeReturned Outcome = "returned" // the worker stops; the task runs elsewhere
)
