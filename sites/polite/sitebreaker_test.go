package polite_test

import (
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"muster/internal/limit"
	"muster/internal/redistest"
	"muster/internal/testutil"
	"muster/sites/fetch"
	"muster/sites/polite"
)

// cooldown is the first cooldown of a SiteBreaker.
const cooldown = 30 * time.Second

var noLog = slog.New(slog.DiscardHandler)

// A site is down when enough pages fail because of the site instead of the pages or proxies.
func TestSiteBreakerOpens(t *testing.T) {
	t.Parallel()
	failure := func(class fetch.Class, via string) error {
		return &fetch.Error{Class: class, Via: via, Direct: via == "", Err: errors.New("x")}
	}
	for name, c := range map[string]struct {
		failure func(n int) error
		pages   int // different pages
		opens   int // after how many requests; 0: never
	}{
		"server errors through three proxies": {func(n int) error { return failure(fetch.Server, fmt.Sprint("proxy", n%3)) }, 20, 5},
		"server errors, directly":             {func(int) error { return failure(fetch.Server, "") }, 20, 5},
		"server errors through two proxies":   {func(n int) error { return failure(fetch.Server, fmt.Sprint("proxy", n%2)) }, 20, 15},
		"pages with status 500, directly": {func(int) error {
			return &fetch.Error{Class: fetch.Server, Status: 500, Direct: true, Err: errors.New("x")}
		}, 20, 15},
		"closed connections, directly":             {func(int) error { return failure(fetch.Connect, "") }, 20, 5},
		"closed connections through three proxies": {func(n int) error { return failure(fetch.Connect, fmt.Sprint("proxy", n%3)) }, 20, 5},
		"closed connections through one proxy":     {func(int) error { return failure(fetch.Connect, "proxy") }, 20, 15},
		"cut bodies, directly":                     {func(int) error { return failure(fetch.Truncated, "") }, 20, 5},
		"cut bodies through one proxy":             {func(int) error { return failure(fetch.Truncated, "proxy") }, 20, 15},
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
			redistest.Both(t, func(t *testing.T, rdb redis.UniversalClient) { opens(t, rdb, c.failure, c.pages, c.opens) })
		})
	}
}

// opens checks after how many of 20 requests for different pages a breaker opens. failure returns the errors of the requests.
func opens(t *testing.T, rdb redis.UniversalClient, failure func(n int) error, pages, want int) {
	t.Helper()
	b := polite.NewSiteBreaker(rdb, "shop.example", 15*time.Minute, time.Now(), limit.BreakerConfig{Logger: noLog})
	other := polite.NewSiteBreaker(rdb, "shop.example", 15*time.Minute, time.Now(), limit.BreakerConfig{Logger: noLog})
	opened := 0
	for n := range 20 {
		permit, err := b.Allow(t.Context())
		if w, ok := errors.AsType[*polite.WaitError](err); ok {
			if w.After <= 0 || w.After > cooldown {
				t.Errorf("got open for %s, want at most %s", w.After, cooldown)
			}
			opened = n
			break
		}
		testutil.Ok(t, err)
		down := testutil.Must(b.Report(t.Context(), permit, n < pages, fetch.OutcomeOf(failure(n))))(t)
		if opens := want == n+1; (down > 0) != opens || down > cooldown {
			t.Errorf("request %d: got down for %s, want down: %v", n+1, down, opens)
		}
	}
	if opened != want {
		t.Errorf("got open after %d requests, want after %d", opened, want)
	}
	if n, err := rdb.Exists(t.Context(), "muster:sites:failures:shop.example").Result(); err != nil {
		t.Error(err)
	} else if size, err := rdb.HLen(t.Context(), "muster:sites:failures:shop.example").Result(); n > 0 && (err != nil || size > 5) {
		t.Errorf("got %d fields of failures, %v, want at most 5", size, err)
	}
	if _, err := other.Allow(t.Context()); errors.As(err, new(*polite.WaitError)) != (want > 0) {
		t.Errorf("another process: got %v, want a WaitError: %v", err, want > 0)
	}
}

// A job stops waiting for a site that stays down after its own patience, but not during a trial request.
func TestSiteStaysDown(t *testing.T) {
	t.Parallel()
	redistest.Both(t, func(t *testing.T, rdb redis.UniversalClient) {
		cfg := limit.BreakerConfig{Cooldown: time.Millisecond, Logger: noLog}
		breakerOf := func(patience time.Duration, began time.Time, cfg limit.BreakerConfig) *polite.SiteBreaker {
			return polite.NewSiteBreaker(rdb, "shop.example", patience, began, cfg)
		}
		long := time.Now().Add(-time.Hour)
		b := breakerOf(time.Hour, long, cfg)
		failure := &fetch.Error{Class: fetch.Connect, Direct: true, Err: errors.New("refused")}
		for range 5 {
			permit := testutil.Must(b.Allow(t.Context()))(t)
			testutil.Must(b.Report(t.Context(), permit, true, fetch.OutcomeOf(failure)))(t)
		}
		patient := limit.BreakerConfig{Logger: noLog} // with the default cooldown, which is not over
		testutil.Eventually(t, "the site to be down for more than a moment", func() bool {
			_, err := breakerOf(time.Nanosecond, long, patient).Allow(t.Context())
			gone, ok := errors.AsType[*polite.DownError](err)
			return ok && gone.Class == string(fetch.Connect) && !gone.Since.IsZero()
		})
		if _, err := breakerOf(time.Hour, long, patient).Allow(t.Context()); !errors.As(err, new(*polite.WaitError)) {
			t.Errorf("a job that may wait for longer: got %v, want a WaitError", err)
		}
		if _, err := breakerOf(time.Minute, time.Now(), patient).Allow(t.Context()); !errors.As(err, new(*polite.WaitError)) {
			t.Errorf("a job that has begun just now: got %v, want a WaitError", err)
		}
		var trials []limit.Permit
		testutil.Eventually(t, "the site to be tried", func() bool {
			permit, err := b.Allow(t.Context())
			if err == nil && permit.Trial() {
				trials = append(trials, permit)
			}
			return len(trials) == 1
		})
		if _, err := breakerOf(time.Nanosecond, long, cfg).Allow(t.Context()); !errors.As(err, new(*polite.WaitError)) {
			t.Errorf("while it is tried: got %v, want a WaitError", err)
		}
		if down, err := b.Report(t.Context(), trials[0], false, fetch.OutcomeOf(nil)); err != nil || down != 0 {
			t.Errorf("a fetched page: got %s, %v, want 0 and no error", down, err)
		}
		if _, err := breakerOf(time.Nanosecond, long, patient).Allow(t.Context()); err != nil {
			t.Errorf("a site that is up again: got %v, want no error", err)
		}
	})
}

// The duration of an outage does not depend on the clock difference between Redis and this machine.
func TestDowntimeIsByTheClockOfRedis(t *testing.T) {
	t.Parallel()
	for _, ahead := range []time.Duration{-time.Hour, time.Hour} {
		rdb, jump := redistest.Clock(t)
		jump(ahead)
		b := polite.NewSiteBreaker(rdb, "shop.example", 15*time.Minute, time.Now().Add(-2*time.Hour), limit.BreakerConfig{Logger: noLog})
		var down time.Duration
		for range 10 {
			permit, err := b.Allow(t.Context())
			if err != nil {
				break
			}
			down = testutil.Must(b.Report(t.Context(), permit, true, polite.Outcome{OfSite: true, Class: "timeout"}))(t)
		}
		if down <= 0 || down > 2*time.Minute {
			t.Errorf("Redis ahead by %v: down for %v, want at most two minutes", ahead, down)
		}
		var wait *polite.WaitError
		if _, err := b.Allow(t.Context()); !errors.As(err, &wait) || wait.After > 2*time.Minute {
			t.Errorf("Redis ahead by %v: got %v, want a wait of at most two minutes", ahead, err)
		}
	}
}
