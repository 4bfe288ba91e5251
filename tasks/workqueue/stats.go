package workqueue

import (
	"context"
	"errors"
	"fmt"

	"github.com/redis/go-redis/v9"
)

// Stats counts the items of a queue by state. Delayed ones are among the
// queued.
type Stats struct {
	Queued     int64 `json:"queued"`
	InProgress int64 `json:"in_progress"`
	Done       int64 `json:"done"`
	Skipped    int64 `json:"skipped"`
	Error      int64 `json:"error"`
	Total      int64 `json:"total"`
	Delayed    int64 `json:"delayed"`
	Outputs    int64 `json:"outputs"` // in the output stream, not yet acknowledged
	Paused     bool  `json:"paused"`

	Expired int64   `json:"expired"`      // leases that ran out, since the queue was made
	Waiting float64 `json:"next_waiting"` // seconds that the next item has been ready for a worker
}

// Open is how many items are not terminal.
func (s Stats) Open() int64 { return s.Queued + s.InProgress }

// Stats reads the counters, all at one moment.
func (q *Queue) Stats(ctx context.Context) (Stats, error) {
	s, _, err := q.stats(ctx)
	return s, err
}

// cards are the sizes of the sets beside the counters, and how often the queue
// has changed.
type cards struct{ ready, leased, failed, moves int64 }

func (q *Queue) stats(ctx context.Context) (Stats, cards, error) {
	if q.err != nil {
		return Stats{}, cards{}, q.err
	}
	n, err := q.runInts(ctx, "read statistics", statsCmd)
	if err != nil {
		return Stats{}, cards{}, err
	}
	return Stats{
		Queued: n[0], InProgress: n[1], Done: n[2], Skipped: n[3], Error: n[4],
		Total:   n[0] + n[1] + n[2] + n[3] + n[4],
		Delayed: n[5], Outputs: n[9], Paused: n[11] == 1,
		Expired: n[12], Waiting: float64(n[13]) / 1000,
	}, cards{ready: n[6], leased: n[7], failed: n[8], moves: n[10]}, nil
}

// ErrBusy says that a queue changed all the time while it was recounted.
var ErrBusy = errors.New("the queue changes too fast to be recounted; pause it and try again")

// Verify recounts all items and compares the result with the counters and
// indexes. It returns the recount, and an error that names every difference.
func (q *Queue) Verify(ctx context.Context) (Stats, error) {
	for range 5 {
		before, sizes, err := q.stats(ctx)
		if err != nil {
			return Stats{}, err
		}
		n, err := q.recount(ctx)
		if err != nil {
			return Stats{}, fmt.Errorf("recount queue %s: %w", q.name, err)
		}
		_, after, err := q.stats(ctx)
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

// recount counts the records by state letter.
func (q *Queue) recount(ctx context.Context) (map[byte]int64, error) {
	// A scan may show a field twice while the hash is being resized.
	seen := make(map[string]byte)
	var cursor uint64
	for {
		kv, next, err := q.rdb.HScan(ctx, q.keys.rec, cursor, "", 1000).Result()
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

// Failed returns up to n IDs of items in state error, those that failed first
// first, from an offset on.
func (q *Queue) Failed(ctx context.Context, offset, n int) ([]string, error) {
	if q.err != nil {
		return nil, q.err
	}
	ids, err := q.rdb.ZRangeArgs(ctx, redis.ZRangeArgs{
		Key: q.keys.failed, Start: offset, Stop: offset + n - 1,
	}).Result()
	if err != nil {
		return nil, fmt.Errorf("list the failed items of queue %s: %w", q.name, err)
	}
	return ids, nil
}
