package limit_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"muster/internal/testutil"
	"muster/tasks/limit"
	"muster/tasks/redistest"
)

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
			testutil.Ok(t, err)
			return wait, ok
		}
		if wait, ok := reserve(a, "slow", 0); wait != 0 || !ok {
			t.Fatalf("the first: got %v, %v; want no wait", wait, ok)
		}
		for range 2 { // a free time that was not reserved remains free
			if wait, ok := reserve(b, "slow", time.Second); ok || wait < 50*time.Second || wait > 2*time.Minute {
				t.Fatalf("the second: got %v, %v; want one to two minutes, not taken", wait, ok)
			}
		}
		if wait, ok := reserve(b, "slow", time.Hour); !ok || wait > 2*time.Minute {
			t.Fatalf("with more patience: got %v, %v; want two minutes at most", wait, ok)
		}
		if wait, ok := reserve(a, "slow", time.Hour); !ok || wait < 110*time.Second {
			t.Fatalf("the next: got %v, %v; want two minutes or more", wait, ok)
		}
		start := time.Now()
		for range 5 {
			if _, err := a.Wait(ctx, "quick"); err != nil {
				t.Fatal(err)
			}
			if wait, ok := reserve(b, "free", 0); wait != 0 || !ok {
				t.Fatalf("without a pace: got %v, %v; want no wait", wait, ok)
			}
		}
		if d := time.Since(start); d < 119*time.Millisecond {
			t.Fatalf("five uses took %v, want 120ms or more", d)
		}
		for range 2 {
			testutil.Ok(t, b.NotBefore(ctx, "free", time.Now().Add(time.Hour)))
			_ = b.NotBefore(ctx, "free", time.Now().Add(time.Minute)) // earlier: no effect
			_ = b.NotBefore(ctx, "free", time.Now().Add(-time.Minute))
		}
		if wait, ok := reserve(a, "free", time.Minute); ok || wait < 59*time.Minute {
			t.Fatalf("got %v, %v; want an hour, not taken", wait, ok)
		}
		short, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
		defer cancel()
		if _, err := a.Wait(short, "free"); !errors.Is(err, limit.ErrTooLong) {
			t.Fatalf("got %v, want ErrTooLong", err)
		}
	})
}

// The longer one of a specific interval and the pace of the key applies.
func TestReserveIntervalUsesLongerInterval(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, rdb redis.UniversalClient) {
		p := limit.NewPacer(rdb, limit.PacerConfig{Default: limit.Pace{Interval: time.Minute}})
		for key, c := range map[string]struct{ apart, low, high time.Duration }{
			"longer":   {time.Hour, 59 * time.Minute, time.Hour},
			"shorter":  {time.Second, 50 * time.Second, time.Minute},
			"negative": {-time.Hour, 50 * time.Second, time.Minute},
		} {
			if wait, ok, err := p.ReserveInterval(t.Context(), key, c.apart, 0); wait != 0 || !ok || err != nil {
				t.Errorf("%s, the first: got %v, %v, %v; want no wait", key, wait, ok, err)
			}
			if wait, ok, err := p.ReserveInterval(t.Context(), key, c.apart, 0); wait < c.low || wait > c.high || ok || err != nil {
				t.Errorf("%s, the second: got %v, %v, %v; want %v to %v, not taken", key, wait, ok, err, c.low, c.high)
			}
		}
	})
}
