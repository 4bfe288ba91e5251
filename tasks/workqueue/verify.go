package workqueue

import (
	"context"
	"errors"
	"fmt"
	"slices"
)

// ErrBusy says that a queue kept changing while it was recounted.
var ErrBusy = errors.New("the queue changes too fast to be recounted; pause it and try again")

// Verify recounts all items and compares the result with the counters and
// indexes. It returns the recount, and an error that names every difference.
func (q *Queue) Verify(ctx context.Context) (Stats, error) {
	for range 5 {
		before, sizes, err := readStats(ctx, &q.store)
		if err != nil {
			return Stats{}, err
		}
		n, err := recount(ctx, &q.store)
		if err != nil {
			return Stats{}, fmt.Errorf("recount queue %s: %w", q.name, err)
		}
		_, after, err := readStats(ctx, &q.store)
		if err != nil {
			return Stats{}, err
		}
		if sizes.moves != after.moves {
			continue
		}
		counted := Stats{
			Queued: n['q'] + n['w'], InProgress: n['i'], Done: n['d'], Skipped: n['s'], Error: n['e'],
			Delayed: n['w'], Outputs: before.Outputs, Paused: before.Paused,
		}
		counted.Total = counted.Queued + counted.InProgress + counted.Done + counted.Skipped + counted.Error
		var errs []error
		differ := func(what string, got, want int64) {
			if got != want {
				errs = append(errs, fmt.Errorf("queue %s has %d %s, recounted %d", q.name, got, what, want))
			}
		}
		differ("queued", before.Queued, counted.Queued)
		differ("in_progress", before.InProgress, counted.InProgress)
		differ("done", before.Done, counted.Done)
		differ("skipped", before.Skipped, counted.Skipped)
		differ("error", before.Error, counted.Error)
		differ("delayed", before.Delayed, n['w'])
		differ("ready", sizes.ready, n['q'])
		differ("leased", sizes.leased, n['i'])
		differ("listed as failed", sizes.failed, n['e'])
		return counted, errors.Join(errs...)
	}
	return Stats{}, ErrBusy
}

// Repair corrects counters and indexes from the records of the items, and
// returns how many items were not indexed correctly: a Redis that lost its last
// second, or a change of keys by hand, can cause that. An item that is in
// progress without a lease runs again. It may be called at any time; on a queue
// that keeps changing it leaves the counters and returns ErrBusy.
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
			v, err := q.run(ctx, "repair items", "repair", part...)
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
		_, sizes, err := readStats(ctx, &q.store)
		if err != nil {
			return fixed, err
		}
		n, err := recount(ctx, &q.store)
		if err != nil {
			return fixed, fmt.Errorf("recount queue %s: %w", q.name, err)
		}
		v, err := q.run(ctx, "set counters", "setcounts", sizes.moves, n['q']+n['w'], n['i'], n['d'], n['s'], n['e'])
		if err != nil || toInt(v) == 1 {
			return fixed, err
		}
	}
	return fixed, ErrBusy
}

// recount counts the records by state letter.
func recount(ctx context.Context, s *store) (map[byte]int64, error) {
	// A scan may show a field twice while the hash is being resized.
	seen := make(map[string]byte)
	var cursor uint64
	for {
		kv, next, err := s.rdb.HScan(ctx, s.keys.rec, cursor, "", 1000).Result()
		if err != nil {
			return nil, err
		}
		for i := 0; i+1 < len(kv); i += 2 {
			if kv[i+1] != "" {
				seen[kv[i]] = kv[i+1][0]
			}
		}
		if cursor = next; cursor == 0 {
			break
		}
	}
	n := make(map[byte]int64)
	for _, letter := range seen {
		n[letter]++
	}
	return n, nil
}
