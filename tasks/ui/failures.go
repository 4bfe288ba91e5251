package ui

import (
	"context"
	"errors"
	"sync"
	"time"

	"muster/internal/clip"
	"muster/tasks"
	"muster/tasks/tasktype"
)

const (
	mostCached  = 2000            // failures in a cache
	failureTime = 2 * time.Second // timeout for reading a failure of a workflow that may run again
)

// Failures caches the errors of failed workflows, which do not change until a retry. Its zero value is an empty cache. It is safe for
// concurrent use.
type Failures struct {
	mu  sync.Mutex // guards all
	all map[failedRun]tasktype.Failure
}

// failedRun identifies a run of a workflow. A retry ends at another time.
type failedRun struct {
	id    string
	ended int64
}

// Of returns the failure of a workflow with one line of its message. It is empty if the workflow has not failed or its result has
// expired.
func (f *Failures) Of(ctx context.Context, client *tasks.Client, w tasktype.Workflow) (tasktype.Failure, error) {
	if w.State != tasktype.WorkflowFailed {
		return tasktype.Failure{}, nil
	}
	run := failedRun{w.ID, w.Ended.UnixMilli()}
	f.mu.Lock()
	known, ok := f.all[run]
	f.mu.Unlock()
	if ok {
		return known, nil
	}
	reading, cancel := context.WithTimeout(ctx, failureTime)
	defer cancel()
	attached := tasks.Attach[any](client, w.ID)
	p, err := attached.Progress(reading)
	if err == nil && !p.Ended {
		return tasktype.Failure{}, nil // retried since the listing: a wait would last
	}
	if err == nil {
		_, err = attached.Wait(reading)
	}
	failure, ok := errors.AsType[*tasks.Failure](err)
	switch {
	case ok:
		known = tasktype.Failure{Task: failure.Task, Code: clip.Line(failure.Code, 200), Message: clip.Line(failure.Message, 200)}
	case err == nil, errors.Is(err, tasks.ErrNotFound), errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil:
		return tasktype.Failure{}, nil // retried or expired since the listing
	default:
		return tasktype.Failure{}, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.all == nil || len(f.all) >= mostCached {
		f.all = map[failedRun]tasktype.Failure{}
	}
	f.all[run] = known
	return known, nil
}

// flowRow is a workflow of a list.
type flowRow struct {
	tasktype.Workflow
	Failure  tasktype.Failure  // empty unless it has failed
	Progress tasktype.Progress // of a running one
}

// Error describes the failure in one line: the task, unless the workflow has its name, the code and the message.
func (r flowRow) Error() string {
	text := r.Failure.Message
	if code := r.Failure.Code; code != "" && code != tasktype.CodeError {
		text = code + ": " + text
	}
	if task := r.Failure.Task; task != "" && task != r.Name {
		text = task + ": " + text
	}
	return text
}

// rows returns the rows of a list of workflows.
func (s *site) rows(ctx context.Context, list []tasktype.Workflow) ([]flowRow, error) {
	out := make([]flowRow, len(list))
	for i, w := range list {
		failure, err := s.known.Of(ctx, s.client, w)
		if err != nil {
			return nil, err
		}
		out[i] = flowRow{Workflow: w, Failure: failure}
		if w.State == tasktype.WorkflowRunning {
			if out[i].Progress, err = s.client.Workflow(w.ID).Progress(ctx); err != nil && !errors.Is(err, tasks.ErrNotFound) {
				return nil, err
			}
		}
	}
	return out, nil
}
