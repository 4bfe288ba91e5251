package workqueue

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// maxOutputs bounds the outputs of one item.
const maxOutputs = 100_000

// Outcome is how an item ended. Make one with Done, Skipped or Failed, and add
// its result and outputs.
type Outcome struct {
	State   State
	Note    string   // the reason or the error
	Result  []byte   // small; kept with the item. nil: none
	Outputs [][]byte // appended to the queue's output stream, once, with the settling
	Items   []Item   // added to the queue, in the same step, unless it has them
}

// Done is the outcome of an item whose work is done.
func Done() Outcome { return Outcome{State: StateDone} }

// Skipped is the outcome of an item whose work is not needed or not allowed.
func Skipped(reason string) Outcome { return Outcome{State: StateSkipped, Note: reason} }

// Failed is the outcome of an item that will not be tried again. To try again
// use Retry.
func Failed(err error) Outcome {
	if err == nil {
		err = errors.New("failed without an error")
	}
	return Outcome{State: StateError, Note: err.Error()}
}

// With returns the outcome with a result and outputs.
func (o Outcome) With(result []byte, outputs ...[]byte) Outcome {
	o.Result, o.Outputs = result, outputs
	return o
}

func (o Outcome) check(id string, maxBytes int) error {
	if _, err := o.State.letter(); err != nil {
		return fmt.Errorf("item %q: %w", id, err)
	}
	if len(o.Result) > maxBytes {
		return fmt.Errorf("item %q: result has %d bytes; %d are allowed", id, len(o.Result), maxBytes)
	}
	if len(o.Outputs) > maxOutputs {
		return fmt.Errorf("item %q: %d outputs; %d are allowed", id, len(o.Outputs), maxOutputs)
	}
	total := 0
	for _, out := range o.Outputs {
		total += len(out)
	}
	if total > 4*maxBytes {
		return fmt.Errorf("item %q: outputs have %d bytes; %d are allowed", id, total, 4*maxBytes)
	}
	for i := range o.Items {
		err := o.Items[i].check(maxBytes)
		if err == nil {
			_, err = o.Items[i].spec(0)
		}
		if err != nil {
			return fmt.Errorf("item %q: new %w", id, err)
		}
	}
	return nil
}

// Settlement is a lease with its outcome.
type Settlement struct {
	Lease   Leased
	Outcome Outcome
}

// Settle ends a leased item. State, result, outputs and new items change in one
// step or not at all; but of more than 500 new items the first ones are added
// before, while the lease holds. It returns ErrLeaseLost if the caller no longer
// holds the item. An item that does not exist, because the queue was deleted, is
// only logged.
func (q *Queue) Settle(ctx context.Context, lease Leased, o Outcome) error {
	return q.SettleAll(ctx, Settlement{lease, o})[0]
}

// SettleLast is Settle. It reports whether no item of the same resource keys waits or is in progress afterwards, of a
// queue that counts by lane.
func (q *Queue) SettleLast(ctx context.Context, lease Leased, o Outcome) (last bool, err error) {
	errs, open := q.settleAll(ctx, []Settlement{{lease, o}})
	return open == 0, errs[0]
}

// SettleAll is Settle of many items in few round trips. It returns an error, or
// nil, for each.
func (q *Queue) SettleAll(ctx context.Context, ss ...Settlement) []error {
	errs, _ := q.settleAll(ctx, ss)
	return errs
}

// settleAll is SettleAll. open is how many items of the resource keys of the last one wait or are in progress, or 0.
func (q *Queue) settleAll(ctx context.Context, ss []Settlement) (errs []error, open int64) {
	errs = make([]error, len(ss))
	args := []any{q.cfg.MaxItems}
	var sent []int
	size := 0
	flush := func() {
		if len(sent) == 0 {
			return
		}
		codes, err := q.ints(ctx, "settle", "settle", args...)
		for k, i := range sent {
			switch {
			case err != nil:
				errs[i] = err
			case codes[k] == 0:
				errs[i] = fmt.Errorf("settle item %q: %w", ss[i].Lease.ID, ErrLeaseLost)
			case codes[k] < 0:
				q.cfg.Logger.WarnContext(ctx, "settled an item that does not exist", "queue", q.name, "item", ss[i].Lease.ID)
			}
		}
		if len(codes) > len(sent) {
			open = codes[len(sent)]
		}
		args, sent, size = args[:1], sent[:0], 0
	}
	for i, s := range ss {
		if err := s.Outcome.check(s.Lease.ID, q.cfg.MaxPayload); err != nil {
			errs[i] = fmt.Errorf("settle %w", err)
			continue
		}
		items, err := q.addedItemArgs(ctx, s)
		if err != nil {
			errs[i] = err
			continue
		}
		letter, _ := s.Outcome.State.letter()
		args = append(args, s.Lease.ID, s.Lease.Token, letter, note(s.Outcome.Note), s.Outcome.Result != nil, s.Outcome.Result, len(s.Outcome.Outputs), len(items)/itemArgs)
		for _, out := range s.Outcome.Outputs {
			args = append(args, out)
			size += len(out)
		}
		for _, it := range s.Outcome.Items {
			size += len(it.Payload) + len(it.Result)
		}
		args = append(args, items...)
		sent = append(sent, i)
		if size += len(s.Outcome.Result); len(args) > 4000 || size > enqueueBytes {
			flush()
		}
	}
	flush()
	return errs, open
}

// addedItemArgs returns the arguments of the items that are added in the step that
// settles another. If there are too many for one step, it adds the first ones.
func (q *Queue) addedItemArgs(ctx context.Context, s Settlement) (args []any, err error) {
	items := s.Outcome.Items
	specs := make([]string, len(items))
	for i := range items {
		if specs[i], err = items[i].spec(0); err != nil {
			return nil, fmt.Errorf("settle item %q: %w", s.Lease.ID, err)
		}
	}
	first := len(items)
	for size := 0; first > 0 && len(items)-first < enqueueItems; first-- {
		if size += len(specs[first-1]) + len(items[first-1].Result); size > enqueueBytes {
			break
		}
	}
	if first > 0 {
		// The script that settles decides whether the lease was lost: it may have settled the item in an earlier call.
		if _, err := q.EnqueueUnder(ctx, s.Lease, items[:first]...); err != nil && !errors.Is(err, ErrLeaseLost) {
			return nil, err
		}
	}
	for i := first; i < len(items); i++ {
		args = append(args, items[i].args(specs[i])...)
	}
	return args, nil
}

// Retry gives up a lease because the run failed. The item is tried again after
// the delay; below 0 is the queue's Backoff. With countAttempt the run uses up
// an attempt, and if it was the last one the item ends in error. It returns the
// new state of the item, and ErrLeaseLost if the caller no longer holds it.
func (q *Queue) Retry(ctx context.Context, lease Leased, cause error, after time.Duration, countAttempt bool) (State, error) {
	if cause == nil {
		cause = errors.New("failed without an error")
	}
	if after < 0 {
		after = q.Backoff(lease.Attempts + 1)
	}
	v, err := q.run(ctx, "retry", "retry",
		lease.ID, lease.Token, note(cause.Error()), after.Milliseconds(), countAttempt, q.cfg.MaxAttempts)
	if err != nil {
		return "", err
	}
	switch letter := toString(v); letter {
	case "":
		return "", fmt.Errorf("retry item %q: %w", lease.ID, ErrLeaseLost)
	case "?":
		q.cfg.Logger.WarnContext(ctx, "failed an item that does not exist", "queue", q.name, "item", lease.ID)
		return "", nil
	default:
		return stateOf(letter), nil
	}
}

// Backoff returns the queue's delay after the n-th failed attempt, n from 1.
func (q *Queue) Backoff(n int) time.Duration { return q.cfg.Backoff.Delay(n) }

// ErrNotInState means that an item is not in the requested state. Nothing was changed.
var ErrNotInState = errors.New("the item is not in this state")

// Amend overrides the outcome of a finished item: it moves the item from a terminal state to the state of an outcome,
// which may be the same, and replaces note and result. Its attempts are kept. The outcome must have no outputs.
//
// Amend returns ErrNotInState if the item is in another state or not in the queue, and ErrSealed if the queue is
// sealed. It succeeds without a change if the item already has the state, note and result of the outcome, regardless
// of from: calls can be repeated safely. If the state changes, the lease that settled the item is lost.
func (q *Queue) Amend(ctx context.Context, id string, from State, o Outcome) error {
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
	v, err := q.run(ctx, "amend", "amend", id, old, letter, note(o.Note), o.Result != nil, o.Result)
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
	if err := to.check(q.cfg.MaxPayload); err != nil {
		return fmt.Errorf("pass item %.80q: %w", to.ID, err)
	}
	spec, err := to.spec(0)
	if err != nil {
		return fmt.Errorf("pass %w", err)
	}
	v, err := q.run(ctx, "pass", "pass", to.ID, "", data, spec, to.rank(), to.delay(), to.MaxAttempts, to.lane())
	if err != nil {
		return err
	}
	return q.inState("pass", to.ID, toString(v), StateError)
}

// Pass ends a lease and makes its item ready again with the payload, kind, resource keys, labels, priority, limit of
// attempts and NotBefore of to, without attempts and note, after the ready items of its priority. The ID must be the
// ID of the leased item. So an item moves from one kind of worker to the next, and is always in one place.
//
// Pass returns ErrLeaseLost, and changes nothing, if the caller no longer holds the item. A repeated call, after a
// lost reply, succeeds until another lease passes the item; therefore ErrLeaseLost means that this lease did not pass
// the item, or that the item was passed again since. An item that does not exist, because the queue was deleted, is
// only logged.
func (q *Queue) Pass(ctx context.Context, lease Leased, to Item) error {
	if err := to.check(q.cfg.MaxPayload); err != nil {
		return fmt.Errorf("pass item %.80q: %w", lease.ID, err)
	}
	if to.ID != lease.ID {
		return fmt.Errorf("pass item %.80q: the item that it becomes is named %.80q; it must have the same id", lease.ID, to.ID)
	}
	spec, err := to.spec(lease.Token)
	if err != nil {
		return fmt.Errorf("pass %w", err)
	}
	v, err := q.run(ctx, "pass", "pass",
		lease.ID, lease.Token, "", spec, to.rank(), to.delay(), to.MaxAttempts, to.lane())
	if err != nil {
		return err
	}
	switch toString(v) {
	case "ok":
	case "":
		q.cfg.Logger.WarnContext(ctx, "passed an item that does not exist", "queue", q.name, "item", lease.ID)
	default:
		return fmt.Errorf("pass item %q: %w", lease.ID, ErrLeaseLost)
	}
	return nil
}
