package workqueue

import (
	"context"
	"slices"
	"time"
)

// ForgetEnded forgets the items, as [Queue.Forget] does, that have been in a terminal state for longer than age, and returns their
// number. It reads the whole queue: Config.Keep forgets items as they age.
func (q *Queue) ForgetEnded(ctx context.Context, age time.Duration) (n int, err error) {
	for cursor := ""; ; {
		items, next, err := q.Scan(ctx, cursor, maxScan)
		if err != nil {
			return n, err
		}
		var ids []string
		for i := range items {
			if it := &items[i]; it.State.Terminal() && time.Since(it.Updated) > age {
				ids = append(ids, it.ID)
			}
		}
		gone, err := q.Forget(ctx, ids...)
		if n += len(gone); err != nil || next == "" {
			return n, err
		}
		cursor = next
	}
}

// Forget removes items in a terminal state with their results, so that an item with the same ID can be added again.
// Their outputs are kept. It returns the IDs that are no longer in the queue, including unknown ones; open items are
// unchanged. It is for queues without an end.
func (q *Queue) Forget(ctx context.Context, ids ...string) (gone []string, err error) {
	for part := range slices.Chunk(ids, 500) {
		v, err := q.run(ctx, "forget items", "forget", anys(part)...)
		if err != nil {
			return gone, err
		}
		list, _ := v.([]any)
		for _, id := range list {
			gone = append(gone, toString(id))
		}
	}
	return gone, q.err
}
