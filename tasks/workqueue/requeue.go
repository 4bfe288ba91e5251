package workqueue

import (
	"context"
	"fmt"
	"slices"

	"github.com/redis/go-redis/v9"

	"muster/internal/wrap"
)

// RequeueOptions selects the terminal items to try again.
type RequeueOptions struct {
	IDs        []string // which items. Empty: all in state error at the time of the call.
	States     []State  // only items in one of these. Defaults to error.
	MaxRetried int      // only items requeued fewer times in their life. 0: any
	DryRun     bool     // change nothing
	Unsealed   bool     // return ErrSealed, and change nothing, if the queue is sealed
}

// Requeue puts terminal items back into the queue, with their attempts at zero,
// and returns which. It is the only way from a terminal state to another kind of
// state.
func (q *Queue) Requeue(ctx context.Context, r RequeueOptions) ([]string, error) {
	if q.err != nil {
		return nil, q.err
	}
	letters := ""
	for _, s := range r.States {
		l, err := s.letter()
		if err != nil {
			return nil, err
		}
		letters += l
	}
	if letters == "" {
		letters = "e"
	}
	most := -1
	if r.MaxRetried > 0 {
		most = r.MaxRetried
	}
	one := func(ids []string) ([]string, error) {
		v, err := q.run(ctx, "requeue", "requeue", append([]any{r.DryRun, letters, most, r.Unsealed}, anys(ids)...)...)
		list, ok := v.([]any)
		if err == nil && !ok {
			err = fmt.Errorf("requeue in queue %s: %w", q.name, ErrSealed)
		}
		out := make([]string, len(list))
		for i, id := range list {
			out[i] = toString(id)
		}
		return out, err
	}

	var done []string
	for ids := range slices.Chunk(r.IDs, 500) {
		got, err := one(ids)
		done = append(done, got...)
		if err != nil {
			return done, err
		}
	}
	if len(r.IDs) > 0 {
		return done, nil
	}
	// Items that fail from now on are not requeued. Items that are requeued leave the list of failed ones; the others stay in
	// front.
	now, err := q.rdb.Time(ctx).Result()
	if err != nil {
		return nil, fmt.Errorf("requeue in queue %s: %w", q.name, err)
	}
	for offset := 0; ; {
		ids, err := q.rdb.ZRangeArgs(ctx, redis.ZRangeArgs{
			Key: q.keys.failed, ByScore: true, Start: "-inf", Stop: now.UnixMilli(), Offset: int64(offset), Count: 500,
		}).Result()
		if err != nil {
			return done, fmt.Errorf("list the failed items of queue %s: %w", q.name, err)
		}
		if len(ids) == 0 {
			return done, nil
		}
		got, err := one(ids)
		done = append(done, got...)
		if err != nil {
			return done, err
		}
		if r.DryRun {
			offset += len(ids)
		} else {
			offset += len(ids) - len(got)
		}
	}
}

// Failed returns up to n IDs of items in state error from an offset, the first
// to fail first. An offset below 0 counts from the end.
func (q *Queue) Failed(ctx context.Context, offset, n int) ([]string, error) {
	if q.err != nil {
		return nil, q.err
	}
	ids, err := q.rdb.ZRangeArgs(ctx, redis.ZRangeArgs{
		Key: q.keys.failed, Start: offset, Stop: offset + n - 1,
	}).Result()
	return ids, wrap.Err(err, "list the failed items of queue %s", q.name)
}
