package ui

import (
	"context"
	"errors"
	"fmt"
	"time"

	"muster/internal/clip"
	"muster/tasks"
	"muster/tasks/tasktype"
)

const (
	keepFailure = time.Hour       // age of a cached failure
	failureTime = 2 * time.Second // timeout for reading a failure of a workflow that may run again
)

// failure returns the failure of a workflow with one line of its message. It is empty if the workflow has not failed or its result has
// expired. A failure does not change until a retry, which ends at another time, so it is cached.
func (s *site) failure(ctx context.Context, w tasktype.Workflow) (f tasktype.Failure, err error) {
	if w.State != tasktype.WorkflowFailed {
		return f, nil
	}
	return s.causes.Get(ctx, fmt.Sprint(w.ID, " ", w.Ended.UnixMilli()), func(ctx context.Context) (f tasktype.Failure, keep time.Duration, err error) {
		ctx, cancel := context.WithTimeout(ctx, failureTime)
		defer cancel()
		attached := tasks.Attach[any](s.client, w.ID)
		p, err := attached.Progress(ctx)
		if err == nil && p.Ended { // else a retry since the listing, and a wait would last
			_, err = attached.Wait(ctx)
		}
		failure, ok := errors.AsType[*tasks.Failure](err)
		switch {
		case ok:
			return tasktype.Failure{Task: failure.Task, Code: clip.Line(failure.Code, 200), Message: clip.Line(failure.Message, 200)}, keepFailure, nil
		case errors.Is(err, tasks.ErrNotFound), errors.Is(err, context.DeadlineExceeded): // retried or expired since the listing
			err = nil
		}
		return f, 0, err
	})
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
		failure, err := s.failure(ctx, w)
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
