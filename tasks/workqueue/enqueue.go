package workqueue

import (
	"context"
	"errors"
	"fmt"
	"slices"
)

// A script gets at most this many items, and about this many bytes, at a time:
// enough to fill a round trip, few enough not to block Redis.
const (
	enqueueItems = 500
	enqueueBytes = 1 << 20
)

// Check validates an item without adding it.
func (q *Queue) Check(it Item) error { return it.check(q.cfg.MaxPayload) }

// Enqueue adds the items that are not in the queue yet, and returns their
// number. An ID that exists is left as it is, in whatever state. Items are checked
// before any is added; they are added in chunks, so that an error of Redis can
// leave some added: enqueue the same again. A sealed queue takes none: ErrSealed.
func (q *Queue) Enqueue(ctx context.Context, items ...Item) (added int, err error) {
	return enqueue(ctx, q, Leased{}, items)
}

// EnqueueUnder is Enqueue of a worker that adds items only while it holds the
// lease of another item, which it does not end: the lease is checked in the same
// step as each chunk is added. It returns ErrLeaseLost, and how many items were
// added before, if the lease was lost; the error of a sealed queue is ErrSealed,
// too. With no items it checks nothing.
func (q *Queue) EnqueueUnder(ctx context.Context, lease Leased, items ...Item) (added int, err error) {
	if lease.ID == "" {
		return 0, errors.New("enqueue under a lease: the lease names no item; use one that Lease returned")
	}
	return enqueue(ctx, q, lease, items)
}

// enqueue adds items in chunks, while a lease holds if it names one.
func enqueue(ctx context.Context, q *Queue, lease Leased, items []Item) (added int, err error) {
	for i := range items {
		if err := items[i].check(q.cfg.MaxPayload); err != nil {
			return 0, err
		}
	}
	head := append([]any{lease.ID, lease.Token}, q.cfg.storedSettings()...)
	args := slices.Clone(head)
	size := 0
	flush := func() error {
		if len(args) == len(head) {
			return nil
		}
		n, err := enqueueChunk(ctx, q, lease, args)
		added += n
		args, size = args[:len(head)], 0
		return err
	}
	for i := range items {
		it := &items[i]
		spec, err := it.spec(0)
		if err != nil {
			return added, err
		}
		if size+len(spec) > enqueueBytes {
			if err := flush(); err != nil {
				return added, err
			}
		}
		args = append(args, it.args(spec)...)
		size += len(spec) + len(it.Result)
		if len(args)-len(head) >= itemArgs*enqueueItems {
			if err := flush(); err != nil {
				return added, err
			}
		}
	}
	return added, flush()
}

// itemArgs is the number of arguments of an item that a script adds.
const itemArgs = 7

// args are the arguments of an item that a script adds with a spec.
func (it *Item) args(spec string) []any {
	return []any{it.ID, spec, it.rank(), it.delay(), it.MaxAttempts, it.lane(), it.Result}
}

// enqueueChunk runs the script that adds items.
func enqueueChunk(ctx context.Context, q *Queue, lease Leased, args []any) (added int, err error) {
	v, err := q.run(ctx, "enqueue", "enqueue", args...)
	if err != nil {
		return 0, err
	}
	n := int(toInt(v))
	switch {
	case n >= 0:
		return n, nil
	case lease.ID != "" && n == -2:
		return 0, fmt.Errorf("enqueue in queue %s under the lease of item %q: %w (%w)", q.name, lease.ID, ErrLeaseLost, ErrSealed)
	case lease.ID != "":
		return 0, fmt.Errorf("enqueue in queue %s under the lease of item %q: %w", q.name, lease.ID, ErrLeaseLost)
	}
	return 0, fmt.Errorf("enqueue in queue %s: %w", q.name, ErrSealed)
}
