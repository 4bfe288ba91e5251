package ui

import (
	"cmp"
	"fmt"
	"html/template"
	"maps"
	"slices"
	"time"

	"muster/tasks/tasktype"
)

// funcs are the functions of the templates.
var funcs = template.FuncMap{
	"word":      word,
	"ran":       ran,
	"labels":    labelTexts,
	"mebibytes": func(bytes uint64) uint64 { return (bytes + 1<<19) >> 20 },
}

// words are the labels of states, phases, and outcomes that differ from their names. An outcome is of a run that was followed by another run.
var words = map[any]string{
	tasktype.Pending: "pending", tasktype.Started: "running", tasktype.Retry: "retrying", tasktype.Success: "succeeded",
	tasktype.Failed: "failed", tasktype.Revoked: "revoked", tasktype.Skipped: "skipped",
	tasktype.WorkflowSucceeded: "succeeded", tasktype.WorkflowFailed: "failed",
	tasktype.OutcomeAgain: "repeated", tasktype.OutcomeReturned: "worker stopped", tasktype.OutcomeLost: "worker died", tasktype.OutcomeRetry: "failed",
	forOthers: "waiting for other tasks", forTime: "waiting for its time", forWorker: "waiting for a worker", forPerson: "waiting for a person or program",
	earlier: "earlier attempts and pauses", running: "running", succeeded: "succeeded", failed: "failed", revoked: "revoked",
}

// word returns the label of a state or an outcome.
func word(state any) string { return cmp.Or(words[state], fmt.Sprint(state)) }

// ran returns the duration of the last run of a node; negative if it is running or did not run.
func ran(n tasktype.Node) time.Duration {
	end := n.Ended
	if !n.Planned.IsZero() {
		end = n.Planned
	}
	if n.Started.IsZero() || end.Before(n.Started) {
		return -1
	}
	return end.Sub(n.Started)
}

// labelTexts returns labels as KEY=VALUE, sorted.
func labelTexts(of map[string]string) (all []string) {
	for _, k := range slices.Sorted(maps.Keys(of)) {
		all = append(all, k+"="+of[k])
	}
	return all
}
