package polite

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"muster/tasks/redistest"
)

// A slow response that one process observes delays the others.
func TestThrottleIsShared(t *testing.T) {
	t.Parallel()
	redistest.Both(t, func(t *testing.T, rdb redis.UniversalClient) {
		one, two := NewThrottle(rdb, "shop.example"), NewThrottle(rdb, "shop.example")
		observe := func(th *Throttle, latency time.Duration, ok bool) {
			t.Helper()
			if err := th.Observe(t.Context(), latency, ok); err != nil {
				t.Fatal(err)
			}
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
			t.Errorf("a quick answer: got %s, want about half", d)
		}
		for range 20 {
			observe(one, time.Hour, true)
		}
		if d := one.Delay(); d > maxThrottle {
			t.Errorf("got a delay of %s, want at most %s", d, maxThrottle)
		}
	})
}
