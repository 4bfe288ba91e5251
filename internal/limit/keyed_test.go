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

// buckets returns two limiters with the same rate, as in two processes.
func buckets(rdb redis.UniversalClient, r limit.Rate) []*limit.TokenBucket {
	cfg := limit.BucketConfig{Default: r, PerKey: map[string]limit.Rate{"ten": limit.PerMinute(10)}}
	return []*limit.TokenBucket{limit.NewTokenBucket(rdb, cfg), limit.NewTokenBucket(rdb, cfg)}
}

func take(t *testing.T, b *limit.TokenBucket, key string, n float64) (bool, time.Duration) {
	t.Helper()
	ok, wait, err := b.Try(t.Context(), key, n)
	testutil.Ok(t, err)
	return ok, wait
}

// everyBucket runs a test with two buckets on each kind of Redis.
func everyBucket(t *testing.T, r limit.Rate, test func(t *testing.T, bs []*limit.TokenBucket)) {
	t.Helper()
	redistest.Every(t, func(t *testing.T, rdb redis.UniversalClient) { test(t, buckets(rdb, r)) })
}

// A bucket has its capacity and burst at once. More than its size, or more than a bucket without refill has, is never available.
func TestTokenBucketSizes(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		rate  limit.Rate
		n     float64 // tokens of a call
		calls int     // that get their tokens
		never bool    // instead of later
	}{
		"burst":                {limit.Rate{Capacity: 5, Burst: 2, PerSec: 0.001}, 1, 7, false},
		"burst above capacity": {limit.Rate{Capacity: 10, Burst: 20, PerSec: 0.001}, 5, 6, false},
		"without refill":       {limit.Rate{Capacity: 5}, 1, 5, true},
		"without capacity":     {limit.Rate{PerSec: -1}, 1, 0, true},
		"more than its size":   {limit.Rate{Capacity: 1, PerSec: 1}, 100, 0, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			everyBucket(t, c.rate, func(t *testing.T, bs []*limit.TokenBucket) {
				for i := range c.calls {
					if ok, wait := take(t, bs[i%2], "k", c.n); !ok || wait != 0 {
						t.Fatalf("call %d: got %v, %v, want its tokens", i+1, ok, wait)
					}
				}
				ok, wait, err := bs[0].Try(t.Context(), "k", c.n)
				if ok || errors.Is(err, limit.ErrNever) != c.never || (wait > 0) == c.never {
					t.Errorf("the next: got %v, %v, %v, want none; never: %v", ok, wait, err, c.never)
				}
				if c.never {
					if _, err := bs[1].Wait(t.Context(), "k", c.n); !errors.Is(err, limit.ErrNever) {
						t.Errorf("wait: got %v, want %v", err, limit.ErrNever)
					}
				}
			})
		})
	}
}

func TestTokenBucketRefundIsCapped(t *testing.T) {
	t.Parallel()
	everyBucket(t, limit.Rate{Capacity: 5, Burst: 2, PerSec: 0.001}, func(t *testing.T, bs []*limit.TokenBucket) {
		take(t, bs[0], "k", 3)
		testutil.Ok(t, bs[0].Refund(t.Context(), "k", 100))
		if ok, _ := take(t, bs[0], "k", 7); !ok {
			t.Fatal("got less than 7 tokens after a refund, want a full bucket")
		}
		if ok, _ := take(t, bs[0], "k", 1); ok {
			t.Fatal("got more than 7 tokens after a refund, want a full bucket")
		}
	})
}

func TestTokenBucketNeverExceedsRate(t *testing.T) {
	t.Parallel()
	everyBucket(t, limit.Rate{Capacity: 100, PerSec: 400}, func(t *testing.T, bs []*limit.TokenBucket) {
		start := time.Now()
		var wg sync.WaitGroup
		for i := range 50 {
			wg.Go(func() {
				for range 10 {
					if _, err := bs[i%2].Wait(t.Context(), "k", 0.5); err != nil {
						t.Error(err)
					}
				}
			})
		}
		wg.Wait()
		if given, most := 250.0, 100+400*time.Since(start).Seconds(); given > most+0.5 {
			t.Fatalf("got %v tokens, want %v at most", given, most)
		}
	})
}

func TestTokenBucketConcurrentRefunds(t *testing.T) {
	t.Parallel()
	everyBucket(t, limit.Rate{Capacity: 4, PerSec: 0.001}, func(t *testing.T, bs []*limit.TokenBucket) {
		var wg sync.WaitGroup
		for i := range 4 {
			wg.Go(func() {
				for range 50 {
					if ok, wait, err := bs[i%2].Try(t.Context(), "k", 1); !ok || wait < 0 || err != nil {
						t.Errorf("got %v, %v, %v; want a token", ok, wait, err)
					}
					if err := bs[i%2].Refund(t.Context(), "k", 1); err != nil {
						t.Error(err)
					}
				}
			})
		}
		wg.Wait()
	})
}

func TestTokenBucketCanceledWaitRefunds(t *testing.T) {
	t.Parallel()
	everyBucket(t, limit.Rate{Capacity: 1, PerSec: 0.01}, func(t *testing.T, bs []*limit.TokenBucket) {
		take(t, bs[0], "k", 1)
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(20*time.Millisecond, func() { cancel(errors.New("enough")) })
		if _, err := bs[0].Wait(ctx, "k", 1); err == nil {
			t.Fatal("got nil, want the error of the cancelled context")
		}
		if _, wait := take(t, bs[0], "k", 1); wait > 100*time.Second {
			t.Fatalf("got a wait of %v, want 100s at most: the token is refunded", wait)
		}
		short, stop := context.WithTimeout(t.Context(), 10*time.Second)
		defer stop()
		if _, err := bs[0].Wait(short, "k", 1); !errors.Is(err, limit.ErrTooLong) {
			t.Fatalf("got %v, want ErrTooLong", err)
		}
	})
}

func TestTokenBucketIsShared(t *testing.T) {
	t.Parallel()
	everyBucket(t, limit.PerMinute(60), func(t *testing.T, bs []*limit.TokenBucket) {
		var got atomic.Int32
		start := time.Now()
		var wg sync.WaitGroup
		for i := range 70 {
			wg.Go(func() {
				if ok, _, _ := bs[i%2].Try(t.Context(), "k", 1); ok {
					got.Add(1)
				}
			})
		}
		wg.Wait()
		if n := float64(got.Load()); n < 60 || n > 60+math.Ceil(time.Since(start).Seconds()) {
			t.Fatalf("got %v tokens, want 60", n)
		}
	})
}

func TestTokenBucketKeysAreIndependent(t *testing.T) {
	t.Parallel()
	everyBucket(t, limit.PerMinute(1), func(t *testing.T, bs []*limit.TokenBucket) {
		for range 10 {
			if ok, _ := take(t, bs[0], "ten", 1); !ok {
				t.Fatal("got none, want ten per minute")
			}
		}
		if ok, _ := take(t, bs[0], "ten", 1); ok {
			t.Fatal("got an eleventh token, want ten per minute")
		}
		take(t, bs[0], "a", 1)
		take(t, bs[0], "b", 1)
		testutil.Ok(t, bs[0].Reset(t.Context(), "a"))
		okA, _ := take(t, bs[0], "a", 1)
		okB, waitB := take(t, bs[0], "b", 1)
		if !okA || okB || waitB > time.Minute {
			t.Fatalf("got a %v, b %v, wait %v; want a token of a, and none of b for up to a minute", okA, okB, waitB)
		}
	})
}

func TestTokenBucketRejectsInvalidNumbers(t *testing.T) {
	t.Parallel()
	everyBucket(t, limit.PerMinute(1), func(t *testing.T, bs []*limit.TokenBucket) {
		for _, n := range []float64{math.NaN(), math.Inf(1), math.Inf(-1)} {
			if ok, _, err := bs[0].Try(t.Context(), "k", n); ok || err == nil {
				t.Errorf("took %v tokens: got %v, %v; want an error", n, ok, err)
			}
		}
	})
}

func TestTakeZeroReadsBucket(t *testing.T) {
	t.Parallel()
	everyBucket(t, limit.Rate{Capacity: 10, PerSec: 0.001}, func(t *testing.T, bs []*limit.TokenBucket) {
		for _, taken := range []float64{0, 3, 5} { // a full bucket, then 7 and 2 tokens
			if taken > 0 {
				take(t, bs[0], "shop.example", taken)
			}
			first, err := bs[0].Take(t.Context(), "shop.example", 0)
			testutil.Ok(t, err)
			second, err := bs[1].Take(t.Context(), "shop.example", 0)
			testutil.Ok(t, err)
			want := limit.TakeResult{OK: true, Left: map[float64]int{0: 10, 3: 7, 5: 2}[taken]}
			if first != want || second != want {
				t.Errorf("after taking %v more tokens: got %+v and %+v, want %+v twice", taken, first, second, want)
			}
		}
	})
}
