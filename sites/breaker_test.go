package sites

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"muster/sites/fetch"
	"muster/tasks/limit"
	"muster/tasks/redistest"
)

func TestBreaker(t *testing.T) {
	t.Parallel()
	server := func(via string) error { return &fetch.Error{Class: fetch.Server, Via: via, Err: errors.New("500")} }
	for name, c := range map[string]struct {
		failure func(n int) error
		pages   int // different ones
		opens   bool
	}{
		"the site, through three proxies": {func(n int) error { return server(fmt.Sprint("proxy", n%3)) }, 10, true},
		"the site, directly":              {func(int) error { return server("") }, 10, true},
		"the site, through two proxies":   {func(n int) error { return server(fmt.Sprint("proxy", n%2)) }, 10, false},
		"one page":                        {func(n int) error { return server(fmt.Sprint("proxy", n)) }, 1, false},
		"the proxies":                     {func(n int) error { return &fetch.Error{Class: fetch.Proxy, Via: fmt.Sprint(n), Err: errors.New("x")} }, 10, false},
		"rate limits": {func(n int) error {
			return &fetch.Error{Class: fetch.RateLimited, Via: fmt.Sprint(n), Err: errors.New("x")}
		}, 10, false},
		"a page between": {func(n int) error {
			if n%4 == 3 {
				return nil
			}
			return server(fmt.Sprint("proxy", n))
		}, 20, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			redistest.Both(t, func(t *testing.T, rdb redis.UniversalClient) {
				b := newBreaker(rdb, "shop.example", 15*time.Minute, limit.BreakerConfig{})
				other := newBreaker(rdb, "shop.example", 15*time.Minute, limit.BreakerConfig{})
				opened := false
				for n := range 20 {
					permit, err := b.allow(t.Context())
					if l, ok := errors.AsType[later](err); ok {
						if l.after <= 0 || l.after > breakerCooldown {
							t.Errorf("open for %s", l.after)
						}
						opened = true
						break
					}
					if err != nil {
						t.Fatal(err)
					}
					if err := b.report(t.Context(), permit, fmt.Sprint("page", n%c.pages), c.failure(n)); err != nil {
						t.Fatal(err)
					}
				}
				if opened != c.opens {
					t.Errorf("open: %v, want %v", opened, c.opens)
				}
				if _, err := other.allow(t.Context()); errors.As(err, new(later)) != c.opens {
					t.Errorf("another process: got %v", err)
				}
				if !c.opens {
					return
				}
				// A site that stays down is waited for no more.
				old := time.Now().Add(-time.Hour).UnixMilli()
				if err := rdb.Set(t.Context(), downKey("shop.example"), old, 0).Err(); err != nil {
					t.Fatal(err)
				}
				if _, err := b.allow(t.Context()); !errors.Is(err, errDown) {
					t.Errorf("got %v, want that the site is down for too long", err)
				}
			})
		})
	}
}

// What one process has seen of a slow site holds the others back.
func TestThrottleIsShared(t *testing.T) {
	t.Parallel()
	redistest.Both(t, func(t *testing.T, rdb redis.UniversalClient) {
		one, two := &throttle{rdb: rdb, site: "shop.example"}, &throttle{rdb: rdb, site: "shop.example"}
		observe := func(th *throttle, latency time.Duration, ok bool) {
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
