package limit_test

import (
	"context"
	"errors"
	"math"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"muster/tasks/limit"
	"muster/tasks/redistest"
)

// buckets is two limiters of one rate: two processes.
func buckets(rdb redis.UniversalClient, r limit.Rate) []*limit.TokenBucket {
	cfg := limit.BucketConfig{Default: r, PerKey: map[string]limit.Rate{"ten": limit.PerMinute(10)}}
	return []*limit.TokenBucket{limit.NewTokenBucket(rdb, cfg), limit.NewTokenBucket(rdb, cfg)}
}

func take(t *testing.T, b *limit.TokenBucket, key string, n float64) (bool, time.Duration) {
	t.Helper()
	ok, wait, err := b.Try(t.Context(), key, n)
	if err != nil {
		t.Fatal(err)
	}
	return ok, wait
}

func TestTokenBucket(t *testing.T) {
	t.Parallel()
	rows := []struct {
		name string
		rate limit.Rate
		test func(t *testing.T, bs []*limit.TokenBucket)
	}{
		{"burst then wait", limit.Rate{Capacity: 5, Burst: 2, PerSec: 1}, func(t *testing.T, bs []*limit.TokenBucket) {
			for i := range 7 {
				if ok, _ := take(t, bs[i%2], "k", 1); !ok {
					t.Fatalf("token %d of 7 is not there", i+1)
				}
			}
			ok, wait := take(t, bs[0], "k", 1)
			if ok || wait > time.Second || wait < 500*time.Millisecond {
				t.Fatalf("the eighth: %v, wait %v", ok, wait)
			}
		}},
		{"refund is capped", limit.Rate{Capacity: 5, Burst: 2, PerSec: 0.001}, func(t *testing.T, bs []*limit.TokenBucket) {
			take(t, bs[0], "k", 3)
			if err := bs[0].Refund(t.Context(), "k", 100); err != nil {
				t.Fatal(err)
			}
			if ok, _ := take(t, bs[0], "k", 7); !ok {
				t.Fatal("not full after a refund")
			}
			if ok, _ := take(t, bs[0], "k", 1); ok {
				t.Fatal("more than full after a refund")
			}
		}},
		{"many at once", limit.Rate{Capacity: 100, PerSec: 1}, func(t *testing.T, bs []*limit.TokenBucket) {
			var wg sync.WaitGroup
			for i := range 20 {
				wg.Go(func() {
					if ok, wait, err := bs[i%2].Try(t.Context(), "k", 1); !ok || wait != 0 || err != nil {
						t.Errorf("%v, %v, %v", ok, wait, err)
					}
				})
			}
			wg.Wait()
		}},
		{"a rate of zero ends", limit.Rate{Capacity: 5}, func(t *testing.T, bs []*limit.TokenBucket) {
			var got atomic.Int32
			var wg sync.WaitGroup
			for i := range 10 {
				wg.Go(func() {
					ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
					defer cancel()
					_, err := bs[i%2].Wait(ctx, "k", 1)
					if err == nil {
						got.Add(1)
					} else if !errors.Is(err, limit.ErrNever) {
						t.Error(err)
					}
				})
			}
			wg.Wait()
			if got.Load() != 5 {
				t.Fatalf("%d of 5 tokens were given", got.Load())
			}
		}},
		{"nothing at all", limit.Rate{Capacity: 0, Burst: 0, PerSec: -1}, func(t *testing.T, bs []*limit.TokenBucket) {
			if _, _, err := bs[0].Try(t.Context(), "k", 1); !errors.Is(err, limit.ErrNever) {
				t.Fatalf("got %v", err)
			}
		}},
		{"more than it can hold fails at once", limit.Rate{Capacity: 1, PerSec: 1}, func(t *testing.T, bs []*limit.TokenBucket) {
			start := time.Now()
			if _, err := bs[0].Wait(t.Context(), "k", 100); !errors.Is(err, limit.ErrNever) {
				t.Fatalf("got %v", err)
			}
			if time.Since(start) > 30*time.Second {
				t.Fatal("it waited")
			}
		}},
		{"burst above capacity", limit.Rate{Capacity: 10, Burst: 20, PerSec: 0.001}, func(t *testing.T, bs []*limit.TokenBucket) {
			for range 6 {
				if ok, _ := take(t, bs[0], "k", 5); !ok {
					t.Fatal("30 tokens are not there at once")
				}
			}
		}},
		{"never more than filled in", limit.Rate{Capacity: 100, PerSec: 400}, func(t *testing.T, bs []*limit.TokenBucket) {
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
				t.Fatalf("gave %v tokens, %v are right", given, most)
			}
		}},
		{"taken and given back", limit.Rate{Capacity: 4, PerSec: 0.001}, func(t *testing.T, bs []*limit.TokenBucket) {
			var wg sync.WaitGroup
			for i := range 4 {
				wg.Go(func() {
					for range 50 {
						if ok, wait, err := bs[i%2].Try(t.Context(), "k", 1); !ok || wait < 0 || err != nil {
							t.Errorf("%v, %v, %v", ok, wait, err)
						}
						if err := bs[i%2].Refund(t.Context(), "k", 1); err != nil {
							t.Error(err)
						}
					}
				})
			}
			wg.Wait()
		}},
		{"a given-up wait gives back", limit.Rate{Capacity: 1, PerSec: 0.5}, func(t *testing.T, bs []*limit.TokenBucket) {
			take(t, bs[0], "k", 1)
			ctx, cancel := context.WithCancelCause(t.Context())
			time.AfterFunc(20*time.Millisecond, func() { cancel(errors.New("enough")) })
			if _, err := bs[0].Wait(ctx, "k", 1); err == nil {
				t.Fatal("waited to the end")
			}
			if _, wait := take(t, bs[0], "k", 1); wait > 2*time.Second {
				t.Fatalf("its token is still owed: wait %v", wait)
			}
			short, stop := context.WithTimeout(t.Context(), 10*time.Millisecond)
			defer stop()
			if _, err := bs[0].Wait(short, "k", 1); !errors.Is(err, limit.ErrTooLong) {
				t.Fatalf("got %v, want ErrTooLong", err)
			}
		}},
		{"exactly a bucket among clients", limit.PerMinute(60), func(t *testing.T, bs []*limit.TokenBucket) {
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
				t.Fatalf("%v of 60 tokens were given", n)
			}
		}},
		{"keys and resets are apart", limit.PerMinute(1), func(t *testing.T, bs []*limit.TokenBucket) {
			for range 10 {
				if ok, _ := take(t, bs[0], "ten", 1); !ok {
					t.Fatal("ten a minute are not there")
				}
			}
			if ok, _ := take(t, bs[0], "ten", 1); ok {
				t.Fatal("an eleventh")
			}
			take(t, bs[0], "a", 1)
			take(t, bs[0], "b", 1)
			if err := bs[0].Reset(t.Context(), "a"); err != nil {
				t.Fatal(err)
			}
			okA, _ := take(t, bs[0], "a", 1)
			okB, waitB := take(t, bs[0], "b", 1)
			if !okA || okB || waitB > time.Minute {
				t.Fatalf("a %v, b %v, wait %v", okA, okB, waitB)
			}
		}},
		{"no number of tokens", limit.PerMinute(1), func(t *testing.T, bs []*limit.TokenBucket) {
			for _, n := range []float64{math.NaN(), math.Inf(1), math.Inf(-1)} {
				if ok, _, err := bs[0].Try(t.Context(), "k", n); ok || err == nil {
					t.Errorf("took %v", n)
				}
			}
		}},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			redistest.Every(t, func(t *testing.T, rdb redis.UniversalClient) { row.test(t, buckets(rdb, row.rate)) })
		})
	}
}

func TestPacer(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, rdb redis.UniversalClient) {
		ctx := t.Context()
		cfg := limit.PacerConfig{
			Default: limit.Pace{Interval: time.Minute, Jitter: time.Minute},
			PerKey:  map[string]limit.Pace{"quick": {Interval: 30 * time.Millisecond}, "free": {}},
		}
		a, b := limit.NewPacer(rdb, cfg), limit.NewPacer(rdb, cfg)
		reserve := func(p *limit.Pacer, key string, patience time.Duration) (time.Duration, bool) {
			t.Helper()
			wait, ok, err := p.Reserve(ctx, key, patience)
			if err != nil {
				t.Fatal(err)
			}
			return wait, ok
		}
		if wait, ok := reserve(a, "slow", 0); wait != 0 || !ok {
			t.Fatalf("the first waits %v, %v", wait, ok)
		}
		for range 2 { // what was not taken is not owed
			if wait, ok := reserve(b, "slow", time.Second); ok || wait < 50*time.Second || wait > 2*time.Minute {
				t.Fatalf("the second: %v, %v", wait, ok)
			}
		}
		if wait, ok := reserve(b, "slow", time.Hour); !ok || wait > 2*time.Minute {
			t.Fatalf("a patient one: %v, %v", wait, ok)
		}
		if wait, ok := reserve(a, "slow", time.Hour); !ok || wait < 110*time.Second {
			t.Fatalf("the one behind it: %v, %v", wait, ok)
		}
		start := time.Now()
		for range 5 {
			if _, err := a.Wait(ctx, "quick"); err != nil {
				t.Fatal(err)
			}
			if wait, ok := reserve(b, "free", 0); wait != 0 || !ok {
				t.Fatalf("without a pace: %v, %v", wait, ok)
			}
		}
		if d := time.Since(start); d < 119*time.Millisecond {
			t.Fatalf("five uses took %v", d)
		}
		for range 2 {
			if err := b.NotBefore(ctx, "free", time.Now().Add(time.Hour)); err != nil {
				t.Fatal(err)
			}
			_ = b.NotBefore(ctx, "free", time.Now().Add(time.Minute)) // earlier: stays
			_ = b.NotBefore(ctx, "free", time.Now().Add(-time.Minute))
		}
		if wait, ok := reserve(a, "free", time.Minute); ok || wait < 59*time.Minute {
			t.Fatalf("held back only %v, %v", wait, ok)
		}
		short, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
		defer cancel()
		if _, err := a.Wait(short, "free"); !errors.Is(err, limit.ErrTooLong) {
			t.Fatalf("got %v, want ErrTooLong", err)
		}
	})
}
