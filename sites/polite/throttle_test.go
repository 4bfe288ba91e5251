package polite

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"muster/internal/limit"
	"muster/internal/redistest"
	"muster/internal/testutil"
)

// A turn that the hold of a process delays is left to the others.
func TestHoldTakesNoTurn(t *testing.T) {
	t.Parallel()
	rdb := redistest.New(t)
	held, other := &SharedClock{Pacer: limit.NewPacer(rdb, limit.PacerConfig{})}, &SharedClock{Pacer: limit.NewPacer(rdb, limit.PacerConfig{})}
	_ = held.held.Hold(t.Context(), "shop", time.Hour)
	for clock, held := range map[*SharedClock]bool{held: true, other: false} {
		if wait, err := clock.Take(t.Context(), "shop", time.Hour); err != nil || (wait > 0) != held {
			t.Errorf("got a wait of %s, %v, want one: %v", wait, err, held)
		}
	}
}

// A slow response in one process delays the requests of all.
func TestThrottleIsShared(t *testing.T) {
	t.Parallel()
	redistest.Both(t, func(t *testing.T, rdb redis.UniversalClient) {
		one, two := NewThrottle(rdb, "shop.example", true), NewThrottle(rdb, "shop.example", true)
		observe := func(th *Throttle, latency time.Duration, ok bool) {
			t.Helper()
			testutil.Ok(t, th.Observe(t.Context(), latency, ok))
		}
		for range 5 {
			observe(one, 100*time.Millisecond, true)
		}
		if d := one.Delay(); d > 30*time.Millisecond {
			t.Errorf("a steady site: got a delay of %s, want at most 30ms", d)
		}
		observe(one, 2*time.Second, true)
		observe(two, 110*time.Millisecond, false)
		if d := two.Delay(); d < 1500*time.Millisecond {
			t.Errorf("the other process after an error: got a delay of %s, want at least 1.5s", d)
		}
		observe(two, 110*time.Millisecond, true)
		if d := two.Delay(); d < 700*time.Millisecond || d > 1200*time.Millisecond {
			t.Errorf("a quick response: got %s, want about half", d)
		}
		for range 20 {
			observe(one, time.Hour, true)
		}
		if d := one.Delay(); d > maxThrottle {
			t.Errorf("got a delay of %s, want at most %s", d, maxThrottle)
		}
	})
}

// A 429 doubles the delay of all processes once, and pages lower it slowly.
func TestThrottleAfter429(t *testing.T) {
	t.Parallel()
	redistest.Both(t, func(t *testing.T, rdb redis.UniversalClient) {
		one, two := NewThrottle(rdb, "shop.example", false), NewThrottle(rdb, "shop.example", false)
		for range 8 { // that were under way at the same time
			testutil.Ok(t, one.Limited(t.Context(), 0, time.Minute))
		}
		if d := one.Delay(); d != minLimited {
			t.Errorf("got a delay of %s after the first 429, want %s", d, minLimited)
		}
		testutil.Ok(t, two.Observe(t.Context(), time.Hour, true))
		if d := two.Delay(); d >= minLimited || d < 9*minLimited/10 {
			t.Errorf("got %s in another process after a page, want almost %s", d, minLimited)
		}
		testutil.Ok(t, rdb.HSet(t.Context(), throttleKey("shop.example"), "limited_at", 1).Err())
		testutil.Ok(t, two.Limited(t.Context(), 3*time.Second, time.Minute))
		if d := two.Delay(); d != 6*time.Second {
			t.Errorf("got %s after a 429 at an interval of 3s, want 6s", d)
		}
		pages := 0
		for ; two.Delay() > 0 && pages < 2000; pages++ {
			testutil.Ok(t, two.Observe(t.Context(), time.Hour, true))
		}
		if pages < 300 || pages == 2000 {
			t.Errorf("got no delay after %d pages, want it after some hundreds", pages)
		}
		testutil.Ok(t, rdb.HSet(t.Context(), throttleKey("shop.example"), "limited_at", "99999999999999999").Err())
		if err := two.Limited(t.Context(), 0, time.Minute); err != nil || two.Delay() != minLimited {
			t.Errorf("got %s, %v after the clock of Redis was set back, want %s", two.Delay(), err, minLimited)
		}
	})
}
