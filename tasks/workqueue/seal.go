package workqueue

import (
	"context"
	"errors"
)

// ErrSealed means that a queue is sealed. Nothing was changed.
var ErrSealed = errors.New("the queue is sealed: it accepts and leases no items until it is unsealed")

// sealChunk is how many leases one script ends.
const sealChunk = 500

// Seal stops all work on the queue, in every process, until Unseal. A sealed queue leases no items, as if it was
// paused; Enqueue and Amend return ErrSealed; and all leases are lost: their items are queued again, in their old
// position, without an attempt counted. Items without a lease keep their states; Requeue still works.
//
// Seal takes effect at once, but queues the leased items again in chunks: after an error of Redis some may still be
// in progress, without a worker. Then call Seal again; sealing a sealed queue succeeds.
func (q *Queue) Seal(ctx context.Context) error { return seal(ctx, &q.store, 1) }

// Unseal ends Seal. Leases that were held before stay lost. Unsealing a queue
// that is not sealed changes nothing.
func (q *Queue) Unseal(ctx context.Context) error { return seal(ctx, &q.store, 0) }

func seal(ctx context.Context, s *store, on int) error {
	for {
		left, err := s.run(ctx, "seal or unseal", "seal", on, sealChunk)
		if err != nil || toInt(left) == 0 {
			return err
		}
	}
}
