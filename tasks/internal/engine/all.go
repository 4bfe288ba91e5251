package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"muster/tasks/tasktype"
)

// Bounds of changes of all workflows.
const (
	allPage   = 500 // workflows that are read at once
	allAtOnce = 8
	allErrors = 20 // that are returned
)

// RetryAll retries the failed workflows that a filter selects, and returns how many it has retried.
func (in *Inspector) RetryAll(ctx context.Context, q tasktype.WorkflowFilter, retry func(ctx context.Context, ref string) error) (n int, err error) {
	return in.changeAll(ctx, q, tasktype.WorkflowFailed, retry, func(err error) bool { // another call has retried it
		return errors.Is(err, ErrRunning) && !errors.Is(err, errBusy) || errors.Is(err, ErrSucceeded)
	})
}

// CancelAll cancels the running workflows that a filter selects, and returns how many it has cancelled.
func (in *Inspector) CancelAll(ctx context.Context, q tasktype.WorkflowFilter, cancel func(ctx context.Context, ref string) error) (n int, err error) {
	return in.changeAll(ctx, q, tasktype.WorkflowRunning, cancel, func(err error) bool {
		return errors.Is(err, ErrEnded) || errors.Is(err, tasktype.ErrRevoked)
	})
}

// changeAll changes the workflows in a state that a filter selects, and returns how many it has changed. It skips workflows
// that are gone, or whose error needless accepts, continues after other errors, and returns the first of them.
func (in *Inspector) changeAll(ctx context.Context, q tasktype.WorkflowFilter, state tasktype.WorkflowState,
	change func(ctx context.Context, ref string) error, needless func(error) bool) (n int, err error) {
	if q.State != "" && q.State != state {
		return 0, fmt.Errorf("state %q of the filter must be empty or %q", q.State, state)
	}
	q.State, q.Limit = state, allPage
	var errs []error
	failed := 0
	for {
		page, next, err := in.store.Index.Workflows(ctx, q)
		if err != nil {
			return n, errors.Join(append(errs, err)...)
		}
		results := make(chan error, len(page))
		for part := range slices.Chunk(page, max(1, (len(page)+allAtOnce-1)/allAtOnce)) {
			go func() {
				for i := range part {
					results <- change(ctx, part[i].Ref)
				}
			}()
		}
		for range page {
			switch err := <-results; {
			case err == nil:
				n++
			case errors.Is(err, ErrUnknown) || needless(err):
			default:
				if failed++; failed <= allErrors {
					errs = append(errs, err)
				}
			}
		}
		if err := ctx.Err(); err != nil {
			return n, err
		}
		if next == "" {
			break
		}
		q.Cursor = next
	}
	if failed > allErrors {
		errs = append(errs, fmt.Errorf("and %d more workflows with errors", failed-allErrors))
	}
	return n, errors.Join(errs...)
}
