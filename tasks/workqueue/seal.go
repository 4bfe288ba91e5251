package workqueue

import (
	"context"
	"errors"
)

// ErrSealed says that a queue is sealed, and that nothing was changed.
var ErrSealed = errors.New("the queue is sealed: it takes no items and leases none until it is unsealed")

// sealChunk is how many leases one script ends.
const sealChunk = 500

// Seal stops all work on the queue, in every process, until Unseal. Nothing is
// leased, as if the queue was paused; nothing is added and no item is amended
// (ErrSealed); and the leases end: their workers find them lost, and their items
// are queued again, in their old place, without an attempt counted. Items that
// are not leased keep their states; Requeue and Repair work as ever.
//
// All of this holds from the moment at which the queue is sealed, but the items
// are queued again in chunks: after an error of Redis some may still be in
// progress, without a worker. Call Seal again then; sealing a sealed queue is no
// error.
func (q *Admin) Seal(ctx context.Context) error { return seal(ctx, &q.store, 1) }

// Unseal ends Seal. Leases that were held before stay lost. Unsealing a queue
// that is not sealed changes nothing.
func (q *Admin) Unseal(ctx context.Context) error { return seal(ctx, &q.store, 0) }

func seal(ctx context.Context, s *store, on int) error {
	for {
		left, err := s.run(ctx, "seal or unseal", "seal", on, sealChunk)
		if err != nil || toInt(left) == 0 {
			return err
		}
	}
}
