package engine

import (
	"maps"
	"slices"

	"muster/tasks/tasktype"
)

// tell passes the end of a run to the observer.
func (w *Worker) tell(r *Run) {
	if w.cfg.Observe == nil || r.said == "" {
		return
	}
	w.cfg.Observe(tasktype.Attempt{Info: r.Info, Outcome: r.said, Code: r.code, Began: r.began, Took: r.took})
}

// Stats returns what the worker has done since it started.
func (w *Worker) Stats() tasktype.WorkerStats { return w.stats.read() }

// Slots returns how many slots are in use, and how many there are.
func (w *Worker) Slots() (busy, all int) {
	return w.slots.use()
}

// Tasks returns the names that the worker has handlers for, sorted.
func (w *Worker) Tasks() []string { return slices.Sorted(maps.Keys(w.handlers)) }
