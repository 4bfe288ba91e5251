package limit_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"muster/internal/testutil"
	"muster/tasks/limit"
	"muster/tasks/redistest"
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
		cfg := limit.KeyedConfig{Default: 3, PerKey: map[string]int{"a": 2, "zero": 0}}
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
		for key, want := range map[string]int{"a": 2, "other": 3, "zero": 1} {
			if got := must[int](t)(ls[0].Limit(t.Context(), key)); got != want {
				t.Errorf("limit of %s is %d, want %d", key, got, want)
			}
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
	redistest.Every(t, func(t *testing.T, rdb redis.UniversalClient) {
		ctx := t.Context()
		a, b := limit.NewKeyedLimiter(rdb, limit.KeyedConfig{}), limit.NewKeyedLimiter(rdb, limit.KeyedConfig{})
		held := []*limit.Slot{must[*limit.Slot](t)(a.Acquire(ctx, "k"))}
		got := make(chan *limit.Slot)
		var wg sync.WaitGroup
		for range 2 {
			wg.Go(func() {
				s, err := a.Acquire(ctx, "k")
				if err != nil {
					t.Error(err)
				}
				got <- s
			})
		}
		if err := b.SetLimit(ctx, "k", 0); err == nil {
			t.Fatal("a limit of 0: got nil, want an error")
		}
		testutil.Ok(t, b.SetLimit(ctx, "k", 3))
		held = append(held, <-got, <-got)
		wg.Wait()
		testutil.Ok(t, a.SetLimit(ctx, "k", 1))
		for i, s := range held {
			if s := must[*limit.Slot](t)(b.TryAcquire(ctx, "k")); s != nil {
				t.Fatalf("got a slot with %d of 1 held, want none", 3-i)
			}
			testutil.Ok(t, s.Release(ctx))
		}
		last := must[*limit.Slot](t)(b.TryAcquire(ctx, "k"))
		if last == nil {
			t.Fatal("got no slot when all are released, want one")
		}
		_ = last.Release(ctx)
		a.Configure(5, map[string]int{"x": 7})
		if x, y := must[int](t)(a.Limit(ctx, "x")), must[int](t)(a.Limit(ctx, "y")); x != 7 || y != 5 {
			t.Fatalf("got limits %d and %d, want 7 and 5", x, y)
		}
	})
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
		if n := must[int](t)(live.Held(ctx, "k")); n != 1 {
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
