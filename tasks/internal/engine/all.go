package engine

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/sync/errgroup"

	"muster/tasks/tasktype"
)

// Bounds of changes of all workflows.
const (
	allPage   = 500 // workflows that are read at once
	allAtOnce = 8
	allErrors = 20 // that are returned
)

// ChangeAll changes the workflows in a state that a filter selects, and returns how many it has changed. It skips workflows that
// are gone or that another call has changed, continues after other errors, and returns the first of them.
func (in *Inspector) ChangeAll(ctx context.Context, q tasktype.WorkflowFilter, state tasktype.WorkflowState, change func(ctx context.Context, ref string) error) (n int, err error) {
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
		results := make([]error, len(page))
		var group errgroup.Group
		group.SetLimit(allAtOnce)
		for i := range page {
			group.Go(func() error {
				results[i] = change(ctx, page[i].Ref)
				return nil
			})
		}
		_ = group.Wait()
		for _, err := range results {
			switch {
			case err == nil:
				n++
			case errors.Is(err, ErrUnknown) || errors.Is(err, ErrEnded) || errors.Is(err, ErrSucceeded) || errors.Is(err, tasktype.ErrRevoked),
				errors.Is(err, ErrRunning) && !errors.Is(err, errBusy): // of a retry
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
