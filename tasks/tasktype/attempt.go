package tasktype

import "time"

// Info describes a run of a handler.
type Info struct {
	Workflow string // id of the workflow
	Node     string // id of the node in the workflow
	Task     string // name of the task
	Queue    string // queue that the task was taken from
	Priority int    // 0 to 255: above 0, the task runs before others in its queue; 0 if none was set
	Attempt  int    // 1 for the first
	Worker   string // name of the worker that runs it

	// Key is an idempotency key: the same for every attempt at this node, and different for every other node, also of a
	// later workflow with the same id.
	Key string
	// Headers are those that the workflow was sent with. They must not be changed.
	Headers map[string]string
}

// Attempt is an attempt at a task that has ended.
type Attempt struct {
	Info
	Outcome Outcome
	Code    string        // of the failure: one of the codes here or of the handler's; empty without a failure
	Began   time.Time     // when the handler was called, by the worker's clock; zero if it was not called
	Took    time.Duration // how long the handler ran, or how long the worker waited for it
}

// Outcome is how an attempt ended.
type Outcome string

// The outcomes of attempts.
const (
	OutcomeSuccess  Outcome = "success"  // the handler returned a value
	OutcomePlanned  Outcome = "planned"  // the handler returned a plan, which replaces the task
	OutcomeFailure  Outcome = "failure"  // there will be no other attempt
	OutcomeRetry    Outcome = "retry"    // it failed, and there will be another attempt
	OutcomeAgain    Outcome = "again"    // the handler asked for another call
	OutcomePending  Outcome = "pending"  // it waits for an answer from outside
	OutcomeRevoked  Outcome = "revoked"  // revoked by a client or a failed group, or expired before it started
	OutcomeReturned Outcome = "returned" // the worker stopped; another worker runs the task
	OutcomeLost     Outcome = "lost"     // the worker died; another worker runs the task. No observer sees it
)
