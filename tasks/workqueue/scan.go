package workqueue

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
)

// maxScan bounds the items that Scan is asked for at a time.
const maxScan = 1000

// Scan reads a page of about n items in any state; n is at most 1000, and a small queue may be one page. The cursor
// is "" for the first page, then next of the previous page; next is "" after the last page. An item that is in the
// queue during the whole scan is in at least one page, and may be in two. The items of a page are in the order in
// which they were last queued: the order of their addition, except for items that were delayed, failed or requeued
// since.
func (q *Queue) Scan(ctx context.Context, cursor string, n int) (items []Info, next string, err error) {
	if q.err != nil {
		return nil, "", q.err
	}
	var at uint64
	if cursor != "" {
		if at, err = strconv.ParseUint(cursor, 10, 64); err != nil || at == 0 {
			return nil, "", fmt.Errorf("list the items of queue %s: cursor %.40q is not one that Scan returned", q.name, cursor)
		}
	}
	n = min(max(n, 1), maxScan)
	for {
		kv, after, err := q.rdb.HScan(ctx, q.keys.rec, at, "", int64(n)).Result()
		if err != nil {
			return nil, "", fmt.Errorf("list the items of queue %s: %w", q.name, err)
		}
		if items, err = readScanned(ctx, q, kv); err != nil {
			return nil, "", err
		}
		if at = after; at == 0 {
			return items, "", nil
		}
		if len(items) > 0 {
			return items, strconv.FormatUint(at, 10), nil
		}
	}
}

// readScanned reads the items of a page of records, in their order.
func readScanned(ctx context.Context, q *Queue, kv []string) ([]Info, error) {
	// A scan may show a field twice while the hash is being resized.
	places := make(map[string]int64, len(kv)/2)
	ids := make([]string, 0, len(kv)/2)
	for i := 0; i+1 < len(kv); i += 2 {
		if _, ok := places[kv[i]]; !ok {
			places[kv[i]] = placeOf(kv[i+1])
			ids = append(ids, kv[i])
		}
	}
	slices.SortFunc(ids, func(a, b string) int {
		return cmp.Or(cmp.Compare(places[a], places[b]), cmp.Compare(a, b))
	})
	return q.Get(ctx, ids...)
}
