package engine

import (
	"context"

	"muster/tasks/internal/store"
)

// Pause pauses the workflow with a reference or id: workers take no more of its nodes. With pause false, it resumes it.
func (r *Operator) Pause(ctx context.Context, refOrID string, pause bool) error {
	f, err := r.store.Flows.Address(ctx, refOrID)
	if err != nil {
		return err
	}
	state, err := r.store.Flows.Pause(ctx, f, pause)
	if err != nil {
		return err
	}
	if state != store.StopOK {
		return notStopped(state)
	}
	if !pause {
		return r.advancer.orderNext(ctx, f.Ref) // it may have been paused while it waited for another workflow
	}
	return nil
}
