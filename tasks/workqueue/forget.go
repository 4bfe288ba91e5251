package workqueue

import (
	"context"
	"slices"
)

// Forget removes items that are in a terminal state, with their results, as if they had never been added: an item of the
// same ID can be added again. Their outputs stay. It returns the ids that are not in the queue now, also those that were
// not in it before; items that are open are left as they are. It is for queues that are never finished.
func (q *Admin) Forget(ctx context.Context, ids ...string) (gone []string, err error) {
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
