package engine

import (
	"context"
	"errors"
	"time"

	"muster/tasks/internal/graph"
	"muster/tasks/internal/store"
)

// The policies for a send while another workflow has its unique key; they are values of [graph.Opts.Overlap].
const (
	OverlapSkip    = "skip"
	OverlapQueue   = "queue"
	OverlapReplace = "replace"
	OverlapCancel  = "cancel"
)

const (
	orderTries = 30                    // sends in which other senders take the unique key first; with pauses they last longer than a claim
	orderPause = 10 * time.Millisecond // half of the first pause of a send while another sender stores its workflow
	orderLater = 6                     // from this try on the pauses are not longer
	orderEvery = time.Minute           // how often a waiting workflow looks at the one before it, in case nobody reported its end
)

// waitsForOthers reports whether a workflow with a unique key may wait for the end of another one.
func waitsForOthers(o *graph.Opts) bool {
	return o.Overlap == OverlapQueue || o.Overlap == OverlapReplace || o.Overlap == OverlapCancel
}

// orderNext is order for the workflow with a reference.
func (a *advancer) orderNext(ctx context.Context, ref string) error {
	fl, err := a.graphs.load(ctx, ref)
	if errors.Is(err, ErrUnknown) {
		return nil
	}
	if err != nil {
		return err
	}
	return a.order(ctx, fl)
}

// order lets a workflow begin that waits for others with its unique key, once they have ended. Before that it stops these, if
// the policy of the workflow is to replace or to cancel them. The agenda has an entry for the workflow until it begins.
func (a *advancer) order(ctx context.Context, fl *flow) error {
	before, waits, err := a.store.Flows.Before(ctx, fl.Flow)
	if errors.Is(err, ErrUnknown) {
		return nil
	}
	if err != nil {
		return err
	}
	if !waits {
		return a.store.Agenda.Remove(ctx, fl.Flow, orderNote)
	}
	wait := false
	for _, ref := range before {
		other, err := a.store.Flows.Address(ctx, ref)
		if err != nil {
			return err
		}
		state, err := a.store.Flows.Stop(ctx, other, store.OpOrder, fl.Ref)
		if err != nil {
			return err
		}
		if state != store.StopOK {
			continue
		}
		wait = true
		switch fl.g.Overlap {
		case OverlapCancel:
			_, err = a.cancel(ctx, other, store.OpCancel)
		case OverlapReplace:
			if state, err = a.store.Flows.Stop(ctx, other, store.OpReplace); state == store.StopOK {
				err = a.finishRevoke(ctx, other.Ref, nil)
			}
		}
		if err != nil {
			return err
		}
	}
	if wait {
		return a.store.Agenda.Move(ctx, fl.Flow, orderNote, orderEvery)
	}
	_, err = a.store.Flows.Stop(ctx, fl.Flow, store.OpBegin) // which removes the entry
	return err
}

// pause waits for d, or until ctx is done.
func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
