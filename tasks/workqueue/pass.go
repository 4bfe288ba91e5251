package workqueue

import (
	"context"
	"fmt"
)

// Pass ends a lease and makes its item ready again with the payload, kind, resource keys, labels, priority, limit of
// attempts and NotBefore of to, without attempts and note, after the ready items of its priority. The ID must be the
// ID of the leased item. So an item moves from one kind of worker to the next, and is always in one place.
//
// Pass returns ErrLeaseLost, and changes nothing, if the caller no longer holds the item. A repeated call, after a
// lost reply, succeeds until another lease passes the item; therefore ErrLeaseLost means that this lease did not pass
// the item, or that the item was passed again since. An item that does not exist, because the queue was deleted, is
// only logged.
func (q *Queue) Pass(ctx context.Context, lease Leased, to Item) error {
	if q.err != nil {
		return q.err
	}
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
		lease.ID, lease.Token, spec, to.rank(), to.delay(), to.MaxAttempts, to.lane())
	if err != nil {
		return err
	}
	switch toInt(v) {
	case 0:
		return fmt.Errorf("pass item %q: %w", lease.ID, ErrLeaseLost)
	case -1:
		q.cfg.Logger.WarnContext(ctx, "passed an item that does not exist", "queue", q.name, "item", lease.ID)
	}
	return nil
}
