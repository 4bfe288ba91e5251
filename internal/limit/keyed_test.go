package limit_test

import (
	"context"
	"errors"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"muster/internal/limit"
	"muster/internal/redistest"
	"muster/internal/testutil"
)

// crowd counts the callers that hold a slot.
type crowd struct{ now, most atomic.Int32 }

func (c *crowd) enter() {
	n := c.now.Add(1)
	for m := c.most.Load(); n > m && !c.most.CompareAndSwap(m, n); m = c.most.Load() {
	}
}

func TestKeyedLimiterIsShared(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, rdb redis.UniversalClient) {
		cfg := limit.KeyedConfig{Default: 3, PerKey: map[string]int{"a": 2}}
		// Two limiters simulate two processes.
		ls := []*limit.KeyedLimiter{limit.NewKeyedLimiter(rdb, cfg), limit.NewKeyedLimiter(rdb, cfg)}
		var inside crowd
		var wg sync.WaitGroup
		for i := range 10 {
			wg.Go(func() {
				for range 4 {
					s, err := ls[i%2].Acquire(t.Context(), "a")
					if err != nil {
						t.Error(err)
						return
					}
					inside.enter()
					<-time.After(2 * time.Millisecond) // work
					inside.now.Add(-1)
					if err := s.Release(t.Context()); err != nil {
						t.Error(err)
					}
				}
			})
		}
		wg.Wait()
		if got := inside.most.Load(); got != 2 {
			t.Fatalf("up to %d at a time, want 2", got)
		}
		if n := rdb.DBSize(t.Context()).Val(); n != 0 {
			t.Errorf("got keys %v after all slots were released, want none", rdb.Keys(t.Context(), "*").Val())
		}
	})
}

func TestTryAcquire(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, rdb redis.UniversalClient) {
		ctx := t.Context()
		l := limit.NewKeyedLimiter(rdb, limit.KeyedConfig{Default: 0}) // the default 1
		s := must[*limit.Slot](t)(l.TryAcquire(ctx, "a"))
		if s == nil || s.Key() != "a" {
			t.Fatalf("got %v, want a free slot of a", s)
		}
		start := time.Now()
		if again, err := l.TryAcquireFor(ctx, "a", 50*time.Millisecond); again != nil || err != nil {
			t.Fatalf("got %v, %v while the only slot is held, want none", again, err)
		}
		if d := time.Since(start); d < 50*time.Millisecond || d > 20*time.Second {
			t.Fatalf("waited %v, want 50ms", d)
		}
		if other := must[*limit.Slot](t)(l.TryAcquire(ctx, "b")); other == nil {
			t.Fatal("got no slot of another key, want one")
		} else {
			_ = other.Release(ctx)
		}
		for range 3 { // repeated releases do nothing
			testutil.Ok(t, s.Release(ctx))
		}
		// A waiter whose last attempt was in flight when its patience ended can keep its position for two seconds.
		var one *limit.Slot
		testutil.Eventually(t, "a slot is free", func() bool {
			one = must[*limit.Slot](t)(l.TryAcquire(ctx, "a"))
			return one != nil
		})
		if two := must[*limit.Slot](t)(l.TryAcquire(ctx, "a")); two != nil {
			t.Fatal("got a second slot after releasing three times, want one")
		}
		_ = one.Release(ctx)
		gone, cancel := context.WithCancelCause(ctx)
		cancel(errors.New("enough"))
		if _, err := l.Acquire(gone, "a"); err == nil || err.Error() != "enough" {
			t.Fatalf("got %v, want the cause", err)
		}
	})
}

func TestLimitChangesLive(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	l := limit.NewKeyedLimiter(redistest.New(t), limit.KeyedConfig{})
	held := []*limit.Slot{must[*limit.Slot](t)(l.Acquire(ctx, "k"))}
	got := make(chan *limit.Slot)
	for range 2 {
		go func() {
			s, err := l.Acquire(ctx, "k")
			if err != nil {
				t.Error(err)
			}
			got <- s
		}()
	}
	l.Configure(3, nil)
	held = append(held, <-got, <-got)
	l.Configure(5, map[string]int{"k": 1})
	for i, s := range held {
		if s := must[*limit.Slot](t)(l.TryAcquire(ctx, "k")); s != nil {
			t.Fatalf("got a slot with %d of 1 held, want none", 3-i)
		}
		testutil.Ok(t, s.Release(ctx))
	}
	last := must[*limit.Slot](t)(l.TryAcquire(ctx, "k"))
	if last == nil {
		t.Fatal("got no slot when all are released, want one")
	}
	_ = last.Release(ctx)
}

func TestWaitersAreServedInOrder(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	l := limit.NewKeyedLimiter(redistest.New(t), limit.KeyedConfig{})
	first := must[*limit.Slot](t)(l.Acquire(ctx, "k"))
	const n = 100
	var mu sync.Mutex
	var order, want []int
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			s, err := l.Acquire(ctx, "k")
			if err != nil {
				t.Error(err)
				return
			}
			mu.Lock()
			order = append(order, i)
			mu.Unlock()
			_ = s.Release(ctx)
		})
		want = append(want, i)
		testutil.Eventually(t, "a waiter in the queue", func() bool { return limit.Waiting(l, "k") == i+1 })
	}
	_ = first.Release(ctx)
	wg.Wait()
	if !slices.Equal(order, want) {
		t.Fatalf("got order %v, want %v", order, want)
	}
}

func TestSlotsOfDeadHoldersExpire(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, rdb redis.UniversalClient) {
		ctx := t.Context()
		dead := limit.NewKeyedLimiter(rdb, limit.KeyedConfig{TTL: 3 * time.Second})
		must[*limit.Slot](t)(dead.Acquire(ctx, "k"))
		limit.Die(dead)
		live := limit.NewKeyedLimiter(rdb, limit.KeyedConfig{TTL: 3 * time.Second})
		held := must[*limit.Slot](t)(live.Acquire(ctx, "k"))
		defer func() { _ = held.Release(ctx) }()

		// A live holder keeps its slot beyond the TTL.
		keep, cancel := context.WithTimeout(ctx, 4500*time.Millisecond)
		defer cancel()
		if other, err := limit.NewKeyedLimiter(rdb, limit.KeyedConfig{}).Acquire(keep, "k"); err == nil {
			t.Fatalf("got %v while the slot is held, want none", other)
		}
		if n, _ := live.Use(); n != 1 {
			t.Fatalf("%d held, want 1", n)
		}
		testutil.Ok(t, held.Release(ctx))
		// A caller that stopped waiting is not in the queue.
		again := must[*limit.Slot](t)(live.TryAcquire(ctx, "k"))
		if again == nil {
			t.Fatal("got no slot, want the free one")
		}
		_ = again.Release(ctx)
	})
}

// Two limiters simulate two processes: together they get the capacity, and no more.
func TestTokenBucketIsShared(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, rdb redis.UniversalClient) {
		cfg := limit.BucketConfig{Default: limit.PerMinute(60), PerKey: map[string]limit.Rate{"ten": {Capacity: 10, PerSec: 0.001}}}
		bs := []*limit.TokenBucket{limit.NewTokenBucket(rdb, cfg), limit.NewTokenBucket(rdb, cfg)}
		take := func(i int, key string, n float64) limit.TakeResult {
			got, err := bs[i%2].Take(t.Context(), key, n)
			if err != nil {
				t.Error(err)
			}
			return got
		}
		var got atomic.Int32
		start := time.Now()
		var wg sync.WaitGroup
		for i := range 70 {
			wg.Go(func() {
				if take(i, "k", 1).OK {
					got.Add(1)
				}
			})
		}
		wg.Wait()
		if n := float64(got.Load()); n < 60 || n > 60+math.Ceil(time.Since(start).Seconds()) {
			t.Errorf("got %v tokens, want 60", n)
		}
		if got, want := take(0, "ten", 3), (limit.TakeResult{OK: true, Left: 7}); got != want {
			t.Errorf("3 of 10 tokens: got %+v, want %+v", got, want)
		}
		if got := take(1, "ten", 8); got.OK || got.Left != 7 || got.Wait < 900*time.Second || got.Wait > 1000*time.Second {
			t.Errorf("8 of 7 tokens: got %+v, want 1000s to wait", got)
		}
		testutil.Ok(t, bs[0].Refund(t.Context(), "ten", 100))
		if got, want := take(1, "ten", 10), (limit.TakeResult{OK: true}); got != want {
			t.Errorf("10 tokens after a refund: got %+v, want %+v", got, want)
		}
		for _, n := range []float64{11, math.NaN(), math.Inf(1), math.Inf(-1)} {
			if got, err := bs[0].Take(t.Context(), "ten", n); got.OK || err == nil {
				t.Errorf("took %v of 10 tokens: got %+v, %v; want an error", n, got, err)
			}
		}
	})
}

func TestTokenBucketConcurrentRefunds(t *testing.T) {
	t.Parallel()
	b := limit.NewTokenBucket(redistest.New(t), limit.BucketConfig{Default: limit.Rate{Capacity: 4, PerSec: 0.001}})
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 50 {
				if got, err := b.Take(t.Context(), "k", 1); !got.OK || err != nil {
					t.Errorf("got %+v, %v; want a token", got, err)
				}
				if err := b.Refund(t.Context(), "k", 1); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
}
