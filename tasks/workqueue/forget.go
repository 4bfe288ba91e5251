package workqueue

import (
	"context"
	"slices"
)

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
