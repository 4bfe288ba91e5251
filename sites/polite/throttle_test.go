package polite

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"muster/tasks/redistest"
)

func TestThrottle(t *testing.T) {
	t.Parallel()
	var th LocalThrottle
	observe := func(latency time.Duration, ok bool) {
		t.Helper()
		if err := th.Observe(t.Context(), latency, ok); err != nil {
			t.Fatal(err)
		}
	}
	for range 20 {
		observe(100*time.Millisecond, true)
	}
	if d := th.Delay(); d > 30*time.Millisecond {
		t.Errorf("a steady site is delayed by %s", d)
	}
	observe(2*time.Second, true)
	if d := th.Delay(); d < 1500*time.Millisecond {
		t.Errorf("after an answer of 2 s the delay is %s, want it to rise at once", d)
	}
	high := th.Delay()
	observe(10*time.Millisecond, false)
	if d := th.Delay(); d < high {
		t.Errorf("a quick error lowers the delay from %s to %s", high, d)
	}
	observe(100*time.Millisecond, true)
	if d := th.Delay(); d < high/3 || d >= high {
		t.Errorf("a quick answer lowers the delay from %s to %s, want about half", high, d)
	}
	for range 20 {
		observe(time.Hour, true)
	}
	if d := th.Delay(); d > maxThrottle {
		t.Errorf("the delay grows to %s", d)
	}
}

// What one process has seen of a slow site holds the others back.
func TestThrottleIsShared(t *testing.T) {
	t.Parallel()
	redistest.Both(t, func(t *testing.T, rdb redis.UniversalClient) {
		one, two := NewSharedThrottle(rdb, "shop.example"), NewSharedThrottle(rdb, "shop.example")
		observe := func(th *SharedThrottle, latency time.Duration, ok bool) {
			t.Helper()
			if err := th.Observe(t.Context(), latency, ok); err != nil {
				t.Fatal(err)
			}
		}
		for range 5 {
			observe(one, 100*time.Millisecond, true)
		}
		if d := one.Delay(); d > 30*time.Millisecond {
			t.Errorf("a steady site is delayed by %s", d)
		}
		observe(one, 2*time.Second, true)
		observe(two, 110*time.Millisecond, false)
		if d := two.Delay(); d < 1500*time.Millisecond {
			t.Errorf("the other process waits %s; an error must not lower it", d)
		}
		observe(two, 110*time.Millisecond, true)
		if d := two.Delay(); d < 700*time.Millisecond || d > 1200*time.Millisecond {
			t.Errorf("a quick answer: got %s, want about half", d)
		}
		for range 20 {
			observe(one, time.Hour, true)
		}
		if d := one.Delay(); d > maxThrottle {
			t.Errorf("the delay grows to %s", d)
		}
	})
}
