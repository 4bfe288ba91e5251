package workqueue_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"muster/tasks/redistest"
	"muster/tasks/workqueue"
)

// holders counts the workers that hold an item.
type holders struct {
	t    *testing.T
	byID sync.Map // of *atomic.Int32
}

func (h *holders) add(id string, n int32) {
	v, _ := h.byID.LoadOrStore(id, new(atomic.Int32))
	if n := v.(*atomic.Int32).Add(n); n > 1 {
		h.t.Errorf("%d workers hold %s, want 1", n, id)
	}
}

// endAtRandom ends a lease in one of four ways. It reports whether the item was settled.
func endAtRandom(ctx context.Context, q *workqueue.Queue, rng *rand.Rand, l workqueue.Leased) (settled bool, err error) {
	switch rng.IntN(6) {
	case 0:
		_, err = q.Retry(ctx, l, errors.New("e"), 0, true)
	case 1:
		_, err = q.Retry(ctx, l, errors.New("e"), time.Millisecond, false)
	case 2:
		err = q.Return(ctx, l)
	default:
		return true, q.Settle(ctx, l, workqueue.Done().With(nil, []byte(l.ID)))
	}
	return false, err
}

// workAtRandom leases items and ends them, or dies, until no item is open. It returns how many it settled.
func workAtRandom(ctx context.Context, t *testing.T, q *workqueue.Queue, name string, rng *rand.Rand, h *holders) (settled int64) {
	for ctx.Err() == nil {
		got, err := q.Lease(ctx, name, 1+rng.IntN(5))
		if err != nil {
			t.Error(err)
			return settled
		}
		for _, l := range got {
			h.add(l.ID, 1)
		}
		dies := rng.IntN(20) == 0
		for _, l := range got {
			h.add(l.ID, -1)
			if dies {
				continue
			}
			ended, err := endAtRandom(ctx, q, rng, l)
			if err != nil {
				t.Error(err)
			}
			if ended {
				settled++
			}
		}
		if dies {
			if _, err := q.ExpireWorker(ctx, name); err != nil {
				t.Error(err)
			}
		}
		if len(got) == 0 {
			if s, err := q.Stats(ctx); err != nil || s.Open() == 0 {
				return settled
			}
		}
	}
	return settled
}

// Eight workers at once end leases at random and sometimes die: every item ends, its outputs are stored once, and no two
// workers hold an item at the same time.
func TestQueueUnderEightWorkers(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, rdb redis.UniversalClient) {
		const items = 400
		k := newKit(t, rdb, workqueue.Config{MaxAttempts: 5, LeaseTTL: time.Minute, CountLanes: true})
		k.enqueue(numbered(items)...)
		h := &holders{t: t}
		ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
		defer cancel()
		var settled atomic.Int64
		var wg sync.WaitGroup
		for w := range 8 {
			wg.Go(func() {
				settled.Add(workAtRandom(ctx, t, k.Queue, fmt.Sprint("w", w), rand.New(rand.NewPCG(uint64(w), 1)), h))
			})
		}
		wg.Wait()
		s, err := k.Verify(t.Context())
		if err != nil || s.Open() != 0 || s.Total != items || s.Done != settled.Load() {
			t.Fatalf("got %+v, %v; want %d items, none open, %d done", s, err, items, settled.Load())
		}
		outs, err := k.Outputs().Read(t.Context(), 2*items, 0)
		seen := map[string]bool{}
		for _, o := range outs {
			seen[string(o.Data)] = true
		}
		if err != nil || int64(len(outs)) != s.Done || len(seen) != len(outs) {
			t.Fatalf("got %d outputs of %d items, %v; want %d, one each", len(outs), len(seen), err, s.Done)
		}
	})
}
