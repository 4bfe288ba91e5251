package engine

import (
	"maps"
	"slices"
	"time"
)

// The outcomes of attempts.
const (
	OutcomeSuccess  = "success"
	OutcomePlanned  = "planned"
	OutcomeFailure  = "failure"
	OutcomeRetry    = "retry"
	OutcomeAgain    = "again"
	OutcomeRevoked  = "revoked"
	OutcomeReturned = "returned"
)

// Attempt is an attempt at a task that is over.
type Attempt struct {
	Info
	Outcome string
	Code    string        // of the failure; empty when there is none
	Began   time.Time     // when the handler was called; zero if it was not
	Took    time.Duration // how long the handler ran, or was waited for
}

// tell passes the end of a run to the observer.
func (w *Worker) tell(r *Run) {
	if w.cfg.Observe == nil || r.said == "" {
		return
	}
	w.cfg.Observe(Attempt{Info: r.Info, Outcome: r.said, Code: r.code, Began: r.began, Took: r.took})
}

// Stats returns what the worker has done since it started.
func (w *Worker) Stats() WorkerStats { return w.stats.read() }

// Slots returns how many slots are in use, and how many there are.
func (w *Worker) Slots() (busy, all int) {
	return w.slots.use()
}

// Tasks returns the names that the worker has handlers for, sorted.
func (w *Worker) Tasks() []string { return slices.Sorted(maps.Keys(w.handlers)) }
