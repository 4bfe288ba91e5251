package workqueue

import (
	"context"
	"errors"
	"fmt"
)

// ErrNotInState means that an item is not in the requested state. Nothing was changed.
var ErrNotInState = errors.New("the item is not in this state")

// Amend overrides the outcome of a finished item: it moves the item from a terminal state to the state of an outcome,
// which may be the same, and replaces note and result. Its attempts are kept. The outcome must have no outputs.
//
// Amend returns ErrNotInState if the item is in another state or not in the queue, and ErrSealed if the queue is
// sealed. It succeeds without a change if the item already has the state, note and result of the outcome, regardless
// of from: calls can be repeated safely. If the state changes, the lease that settled the item is lost.
func (q *Queue) Amend(ctx context.Context, id string, from State, o Outcome) error {
	if q.err != nil {
		return q.err
	}
	old, err := from.letter()
	if err != nil {
		return fmt.Errorf("amend item %.80q: from %w", id, err)
	}
	if err := o.check(id, q.cfg.MaxPayload); err != nil {
		return fmt.Errorf("amend %w", err)
	}
	if len(o.Outputs) > 0 {
		return fmt.Errorf("amend item %.80q: the outcome has %d outputs; only Settle appends outputs", id, len(o.Outputs))
	}
	letter, _ := o.State.letter()
	has := 0
	if o.Result != nil {
		has = 1
	}
	v, err := q.run(ctx, "amend", "amend", id, old, letter, note(o.Note), has, o.Result)
	if err != nil {
		return err
	}
	return q.inState("amend", id, toString(v), from)
}

// inState returns the error of a script that wants an item in a state.
func (q *Queue) inState(doing, id, is string, want State) error {
	switch is {
	case "ok":
		return nil
	case "sealed":
		return fmt.Errorf("%s item %.80q of queue %s: %w", doing, id, q.name, ErrSealed)
	case "":
		return fmt.Errorf("%s item %.80q of queue %s: it is not in the queue: %w", doing, id, q.name, ErrNotInState)
	default:
		return fmt.Errorf("%s item %.80q of queue %s: it is %s, not %s: %w", doing, id, q.name, stateOf(is), want, ErrNotInState)
	}
}

// PassFailed makes an item in state error ready as Pass does, with no attempts. Data is the data of its Ending. It returns
// ErrNotInState if the item is in another state, and ErrSealed if the queue is sealed.
func (q *Queue) PassFailed(ctx context.Context, to Item, data []byte) error {
	if q.err != nil {
		return q.err
	}
	if err := to.check(q.cfg.MaxPayload); err != nil {
		return fmt.Errorf("pass item %.80q: %w", to.ID, err)
	}
	spec, err := to.spec(0)
	if err != nil {
		return fmt.Errorf("pass %w", err)
	}
	v, err := q.run(ctx, "pass", "passfailed", to.ID, data, spec, to.rank(), to.delay(), to.MaxAttempts, to.lane())
	if err != nil {
		return err
	}
	return q.inState("pass", to.ID, toString(v), StateError)
}
