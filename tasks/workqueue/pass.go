package workqueue

import (
	"context"
	"fmt"
)

// Pass gives up a lease and makes its item ready again as to says: with the
// payload, kind, resource keys, labels, priority, limit of attempts and NotBefore
// of to, with no attempts and no note, behind the items of its priority that are
// ready. The ID must be that of the leased item. So an item goes from one kind of
// worker to the next, and is always in one place.
//
// It returns ErrLeaseLost, and changes nothing, if the caller no longer holds
// the item. A call that is repeated because its answer was lost succeeds until
// another lease passes the item, whatever became of the item meanwhile; so
// ErrLeaseLost means that this lease has not passed it, or that the item has been
// passed again since. An item that does not exist, because the queue was deleted,
// is only logged.
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
