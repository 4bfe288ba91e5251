package engine

import (
	"context"
	"fmt"
	"time"

	"muster/tasks/internal/store"
	"muster/tasks/tasktype"
)

// letterOf returns the letter of the index for a state; 0 for none.
func letterOf(state tasktype.WorkflowState) (letter byte, ok bool) {
	switch state {
	case "":
		return 0, true
	case tasktype.WorkflowRunning:
		return store.Live, true
	case tasktype.WorkflowSucceeded:
		return 'S', true
	case tasktype.WorkflowFailed:
		return 'F', true
	case tasktype.WorkflowRevoked:
		return 'X', true
	}
	return 0, false
}

// stateOf returns the state that a letter of the index stands for.
func stateOf(letter byte) tasktype.WorkflowState {
	for _, state := range []tasktype.WorkflowState{tasktype.WorkflowRunning, tasktype.WorkflowSucceeded, tasktype.WorkflowFailed, tasktype.WorkflowRevoked} {
		if l, _ := letterOf(state); l == letter {
			return state
		}
	}
	return ""
}

// maxPage and defaultPage are how many workflows a page of the index has.
const (
	maxPage     = 1000
	defaultPage = 100
)

// WorkflowQuery says which workflows to list; see [store.WorkflowQuery].
type WorkflowQuery struct {
	State         tasktype.WorkflowState // empty for all
	Name          string
	After, Before time.Time
	Cursor        string
	Limit         int // 0 for 100
}

// Workflows returns a page of the index of workflows, the latest first, and the cursor of the next.
func (in *Inspector) Workflows(ctx context.Context, q WorkflowQuery) (page []tasktype.Workflow, next string, err error) {
	state, ok := letterOf(q.State)
	if !ok {
		return nil, "", fmt.Errorf("%q is not a state of a workflow: use running, success, failure or revoked", q.State)
	}
	if q.Limit == 0 {
		q.Limit = defaultPage
	}
	if q.Limit < 1 || q.Limit > maxPage {
		return nil, "", fmt.Errorf("limit %d must be 1 to %d", q.Limit, maxPage)
	}
	list, next, err := in.store.Index.Workflows(ctx, store.WorkflowQuery{
		State: state, Name: q.Name, After: q.After, Before: q.Before, Cursor: q.Cursor, Limit: q.Limit})
	if err != nil {
		return nil, "", err
	}
	for _, w := range list {
		page = append(page, tasktype.Workflow{ID: w.ID, Name: w.Name, State: stateOf(w.State), Created: w.Created, Ended: w.Ended})
	}
	return page, next, nil
}

// RateQuery says which counts to read: those of one queue or task, by minute or hour.
type RateQuery struct {
	Queue, Task string
	Since       time.Time     // zero: as far back as counts are kept
	Step        time.Duration // a minute or an hour; 0 for a minute
}

// Rates returns the counts that q asks for, by time, queue and task.
func (in *Inspector) Rates(ctx context.Context, q RateQuery) ([]tasktype.RatePoint, error) {
	switch q.Step {
	case 0, time.Minute, time.Hour:
	default:
		return nil, fmt.Errorf("step %s must be a minute or an hour", q.Step)
	}
	return in.store.Counts.Rates(ctx, store.RateQuery{
		Queue: q.Queue, Task: q.Task, Since: q.Since, Until: in.clock.Now(), Hourly: q.Step == time.Hour})
}
