package sites

import (
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"muster/internal/testutil"
	"muster/sites/fetch"
	"muster/tasks/limit"
	"muster/tasks/redistest"
)

var noLog = slog.New(slog.DiscardHandler)

func TestBreaker(t *testing.T) {
	t.Parallel()
	failure := func(class fetch.Class, via string) error {
		return &fetch.Error{Class: class, Via: via, Direct: via == "", Err: errors.New("x")}
	}
	for name, c := range map[string]struct {
		failure func(n int) error
		pages   int // different ones
		opens   int // after so many requests; 0: never
	}{
		"server errors through three proxies":      {func(n int) error { return failure(fetch.Server, fmt.Sprint("proxy", n%3)) }, 20, 5},
		"server errors, directly":                  {func(int) error { return failure(fetch.Server, "") }, 20, 5},
		"server errors through two proxies":        {func(n int) error { return failure(fetch.Server, fmt.Sprint("proxy", n%2)) }, 20, 0},
		"closed connections, directly":             {func(int) error { return failure(fetch.Connect, "") }, 20, 5},
		"closed connections through three proxies": {func(n int) error { return failure(fetch.Connect, fmt.Sprint("proxy", n%3)) }, 20, 5},
		"closed connections through one proxy":     {func(int) error { return failure(fetch.Connect, "proxy") }, 20, 0},
		"cut bodies, directly":                     {func(int) error { return failure(fetch.Truncated, "") }, 20, 5},
		"cut bodies through one proxy":             {func(int) error { return failure(fetch.Truncated, "proxy") }, 20, 0},
		"timeouts, directly":                       {func(int) error { return failure(fetch.Timeout, "") }, 20, 5},
		"timeouts through proxies":                 {func(n int) error { return failure(fetch.Timeout, fmt.Sprint("proxy", n%3)) }, 20, 0},
		"requests that were not sent":              {func(int) error { return &fetch.Error{Class: fetch.Timeout, Err: errors.New("x")} }, 20, 0},
		"pages that failed before":                 {func(n int) error { return failure(fetch.Server, fmt.Sprint("proxy", n)) }, 4, 0},
		"the proxies":                              {func(n int) error { return failure(fetch.Proxy, fmt.Sprint(n)) }, 20, 0},
		"rate limits":                              {func(n int) error { return failure(fetch.RateLimited, fmt.Sprint(n)) }, 20, 0},
		"a page between": {func(n int) error {
			if n%4 == 3 {
				return nil
			}
			return failure(fetch.Server, fmt.Sprint("proxy", n))
		}, 20, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			redistest.Both(t, func(t *testing.T, rdb redis.UniversalClient) {
				b := newBreaker(rdb, "shop.example", 15*time.Minute, time.Now(), limit.BreakerConfig{Logger: noLog})
				other := newBreaker(rdb, "shop.example", 15*time.Minute, time.Now(), limit.BreakerConfig{Logger: noLog})
				opened := 0
				for n := range 20 {
					permit, err := b.allow(t.Context())
					if l, ok := errors.AsType[later](err); ok {
						if l.after <= 0 || l.after > breakerCooldown {
							t.Errorf("open for %s", l.after)
						}
						opened = n
						break
					}
					if err != nil {
						t.Fatal(err)
					}
					down, err := b.report(t.Context(), permit, fmt.Sprint("page", n%c.pages), n < c.pages, c.failure(n))
					if err != nil {
						t.Fatal(err)
					}
					if opens := c.opens == n+1; (down > 0) != opens || down > breakerCooldown {
						t.Errorf("request %d: the site is left alone for %s, want that it is down: %v", n+1, down, opens)
					}
				}
				if opened != c.opens {
					t.Errorf("it opened after %d requests, want after %d", opened, c.opens)
				}
				if _, err := other.allow(t.Context()); errors.As(err, new(later)) != (c.opens > 0) {
					t.Errorf("another process: got %v", err)
				}
			})
		})
	}
}

// When a page has failed with all its tries, one that came before says whether
// it is the site.
func TestBreakerIsConfirmed(t *testing.T) {
	t.Parallel()
	refused := func(via string) error {
		return &fetch.Error{Class: fetch.Connect, Via: via, Direct: via == "", Err: errors.New("x")}
	}
	for name, c := range map[string]struct {
		tries []error // of the page
		probe error
		opens bool
	}{
		"it fails too, directly":         {[]error{refused("")}, refused(""), true},
		"it fails too, through proxies":  {[]error{refused("a"), refused("b")}, refused("c"), true},
		"it fails too, through the same": {[]error{refused("a"), refused("b")}, refused("a"), false},
		"it comes":                       {[]error{refused("")}, nil, false},
		"it is gone":                     {[]error{refused("")}, &fetch.Error{Class: fetch.Gone, Direct: true, Err: errors.New("x")}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBreaker(redistest.New(t), "shop.example", 15*time.Minute, time.Now(), limit.BreakerConfig{Logger: noLog})
			for i, err := range c.tries {
				if down, err := b.report(t.Context(), limit.Permit{}, "page", i == 0, err); err != nil || down != 0 {
					t.Fatalf("before: got %s, %v", down, err)
				}
			}
			down, err := b.confirm(t.Context(), c.probe)
			if err != nil || (down > 0) != c.opens {
				t.Errorf("the site is left alone for %s, %v; want that it is down: %v", down, err, c.opens)
			}
			if _, err := b.allow(t.Context()); errors.As(err, new(later)) != c.opens {
				t.Errorf("then: got %v", err)
			}
		})
	}
}

// A site that stays down is waited for no more, but by each job as long as the
// job may wait, and not while it is tried.
func TestSiteStaysDown(t *testing.T) {
	t.Parallel()
	redistest.Both(t, func(t *testing.T, rdb redis.UniversalClient) {
		cfg := limit.BreakerConfig{Cooldown: time.Millisecond, Logger: noLog}
		breakerOf := func(patience time.Duration, began time.Time, cfg limit.BreakerConfig) *breaker {
			return newBreaker(rdb, "shop.example", patience, began, cfg)
		}
		long := time.Now().Add(-time.Hour)
		b := breakerOf(time.Hour, long, cfg)
		failure := &fetch.Error{Class: fetch.Connect, Direct: true, Err: errors.New("refused")}
		for n := range breakerPages {
			permit, err := b.allow(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if _, err := b.report(t.Context(), permit, fmt.Sprint(n), true, failure); err != nil {
				t.Fatal(err)
			}
		}
		patient := limit.BreakerConfig{Logger: noLog} // for it the cooldown is not over
		testutil.Eventually(t, "the site to be down for more than a moment", func() bool {
			_, err := breakerOf(time.Nanosecond, long, patient).allow(t.Context())
			gone, ok := errors.AsType[*downError](err)
			return ok && gone.class == fetch.Connect && !gone.since.IsZero()
		})
		if _, err := breakerOf(time.Hour, long, patient).allow(t.Context()); !errors.As(err, new(later)) {
			t.Errorf("a job that may wait for longer: got %v, want later", err)
		}
		if _, err := breakerOf(time.Minute, time.Now(), patient).allow(t.Context()); !errors.As(err, new(later)) {
			t.Errorf("a job that has begun just now: got %v, want later", err)
		}
		var trials []limit.Permit
		testutil.Eventually(t, "the site to be tried", func() bool {
			permit, err := b.allow(t.Context())
			if err == nil && permit.Trial() {
				trials = append(trials, permit)
			}
			return len(trials) == 2
		})
		if _, err := breakerOf(time.Nanosecond, long, cfg).allow(t.Context()); !errors.As(err, new(later)) {
			t.Errorf("while it is tried: got %v, want later", err)
		}
		if down, err := b.report(t.Context(), trials[0], "0", false, nil); err != nil || down != 0 {
			t.Errorf("a page that came: got %s, %v", down, err)
		}
		if _, err := breakerOf(time.Nanosecond, long, patient).allow(t.Context()); err != nil {
			t.Errorf("a site that is up again: got %v", err)
		}
	})
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
