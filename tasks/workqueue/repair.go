package workqueue

import (
	"context"
	"fmt"
	"slices"
)

// Repair puts counters and indexes right by the records of the items, and says
// how many items were not indexed as they should be: a Redis that lost its last
// second, or a hand that changed keys, can leave them so. An item that is in
// progress without a lease runs again. It may be called at any time; on a queue
// that changes all the time the counters are left and it returns ErrBusy.
func (q *Queue) Repair(ctx context.Context) (fixed int, err error) {
	if q.err != nil {
		return 0, q.err
	}
	var cursor uint64
	for {
		kv, next, err := q.rdb.HScan(ctx, q.keys.rec, cursor, "", 500).Result()
		if err != nil {
			return fixed, fmt.Errorf("repair queue %s: %w", q.name, err)
		}
		ids := make([]any, 0, len(kv)/2)
		for i := 0; i+1 < len(kv); i += 2 {
			ids = append(ids, kv[i])
		}
		for part := range slices.Chunk(ids, 500) {
			v, err := q.run(ctx, "repair items", repairCmd, part...)
			if err != nil {
				return fixed, err
			}
			fixed += int(toInt(v))
		}
		if cursor = next; cursor == 0 {
			break
		}
	}
	for range 5 {
		_, sizes, err := q.stats(ctx)
		if err != nil {
			return fixed, err
		}
		n, err := q.recount(ctx)
		if err != nil {
			return fixed, fmt.Errorf("recount queue %s: %w", q.name, err)
		}
		v, err := q.run(ctx, "set counters", setCountsCmd, sizes.moves, n['q']+n['w'], n['i'], n['d'], n['s'], n['e'])
		if err != nil || toInt(v) == 1 {
			return fixed, err
		}
	}
	return fixed, ErrBusy
}
