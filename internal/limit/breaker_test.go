package limit_test

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"muster/internal/limit"
	"muster/internal/redistest"
	"muster/internal/testutil"
)

// breakerTest is a key shared by three processes. The third has a shorter cooldown.
type breakerTest struct {
	t          *testing.T
	a, b, cool *limit.Breaker
}

// breakerHost is the key of a breakerTest.
const breakerHost = "example.com:8080"

func everyBreaker(t *testing.T, test func(k breakerTest)) {
	t.Helper()
	redistest.Every(t, func(t *testing.T, rdb redis.UniversalClient) {
		cfg := limit.BreakerConfig{Threshold: 3, Cooldown: time.Minute, TrialTTL: time.Minute, Logger: slog.New(slog.DiscardHandler)}
		a, b := limit.NewBreaker(rdb, cfg), limit.NewBreaker(rdb, cfg)
		cfg.Cooldown = time.Millisecond
		test(breakerTest{t, a, b, limit.NewBreaker(rdb, cfg)})
	})
}

func (k breakerTest) allow(b *limit.Breaker) (limit.Permit, bool) {
	k.t.Helper()
	p, ok, wait, err := b.Allow(k.t.Context(), breakerHost)
	if err != nil || !ok && (wait <= 0 || wait > time.Minute) {
		k.t.Fatalf("got a wait of %v, %v; want a minute at most", wait, err)
	}
	return p, ok
}

func (k breakerTest) want(state string) limit.BreakerState {
	k.t.Helper()
	s := must[limit.BreakerState](k.t)(k.b.State(k.t.Context(), breakerHost))
	if s.State != state {
		k.t.Fatalf("got state %+v, want %s", s, state)
	}
	return s
}

func (k breakerTest) fail(p limit.Permit, block string) {
	k.t.Helper()
	testutil.Ok(k.t, p.Failure(k.t.Context(), block))
}

func (k breakerTest) succeed(p limit.Permit) {
	k.t.Helper()
	testutil.Ok(k.t, p.Success(k.t.Context()))
}

// open reports failures until the breaker opens and returns an earlier permit.
func (k breakerTest) open() limit.Permit {
	k.t.Helper()
	p, _ := k.allow(k.a)
	for range 3 {
		k.fail(p, "captcha")
	}
	k.want("open")
	return p
}

// trials waits for the cooldown and returns the two permitted trials.
func (k breakerTest) trials() (one, two limit.Permit) {
	k.t.Helper()
	testutil.Eventually(k.t, "the end of the cooldown", func() bool {
		return must[limit.BreakerState](k.t)(k.cool.State(k.t.Context(), breakerHost)).State == "half_open"
	})
	one, ok1 := k.allow(k.cool)
	two, ok2 := k.allow(k.b)
	if _, ok3 := k.allow(k.a); !ok1 || !ok2 || ok3 || !one.Trial() || !two.Trial() {
		k.t.Fatalf("half open: got %v %v %v, want two trials", ok1, ok2, ok3)
	}
	return one, two
}

func TestBreakerOpensAfterConsecutiveFailures(t *testing.T) {
	t.Parallel()
	everyBreaker(t, func(k breakerTest) {
		p, _ := k.allow(k.a)
		k.fail(p, "x")
		k.fail(p, "x")
		k.succeed(p) // resets the count
		k.fail(p, "x")
		k.fail(p, "x")
		if s := k.want("closed"); s.Failures != 2 {
			k.t.Fatalf("got %+v, want 2 failures", s)
		}
		k.fail(p, "captcha")
		opened := k.want("open")
		if opened.LastBlock != "captcha" {
			k.t.Fatalf("got %+v, want captcha", opened)
		}
		if _, ok := k.allow(k.b); ok {
			k.t.Fatal("an open breaker: got a permit, want none")
		}
		k.fail(p, "late") // requests that started before it opened change nothing
		k.succeed(p)
		if s := k.want("open"); s.LastBlock != "captcha" || !s.OpenedAt.Equal(opened.OpenedAt) {
			k.t.Fatalf("got %+v, want %+v", s, opened)
		}
		list := must[[]limit.BreakerState](k.t)(k.b.States(k.t.Context()))
		if len(list) != 1 || list[0].Key != breakerHost {
			k.t.Fatalf("got %+v, want only %s", list, breakerHost)
		}
	})
}

func TestFailedTrialReopensBreaker(t *testing.T) {
	t.Parallel()
	everyBreaker(t, func(k breakerTest) {
		k.open()
		opened := k.want("open")
		one, two := k.trials()
		testutil.Ok(k.t, two.Cancel(k.t.Context()))
		two, ok := k.allow(k.a)
		if !ok {
			k.t.Fatal("after a cancelled trial: got no permit, want one")
		}
		k.fail(one, "block")
		if s := k.want("open"); s.LastBlock != "block" || !s.OpenedAt.After(opened.OpenedAt) {
			k.t.Fatalf("got %+v, want block, later than %v", s, opened.OpenedAt)
		}
		k.succeed(two) // a trial of the failed half-open phase
		k.want("open")
	})
}

func TestSuccessfulTrialClosesBreaker(t *testing.T) {
	t.Parallel()
	everyBreaker(t, func(k breakerTest) {
		k.open()
		one, _ := k.trials()
		k.fail(one, "block")
		testutil.Eventually(k.t, "the end of the next cooldown", func() bool {
			var ok bool
			one, ok = k.allow(k.cool)
			return ok
		})
		k.succeed(one)
		if s := k.want("closed"); s.Failures != 0 {
			k.t.Fatalf("got %+v, want no failures", s)
		}
		if list := must[[]limit.BreakerState](k.t)(k.b.States(k.t.Context())); len(list) != 0 {
			k.t.Fatalf("got %+v, want none", list)
		}
		k.open()
		testutil.Ok(k.t, k.a.Reset(k.t.Context(), breakerHost))
		if s := k.want("closed"); s.LastBlock != "" || !s.OpenedAt.IsZero() {
			k.t.Fatalf("got %+v, want no block", s)
		}
	})
}

// The cooldown doubles with each failed trial, until a trial succeeds.
func TestBreakerCooldownDoubles(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, rdb redis.UniversalClient) {
		quick := limit.BreakerConfig{Threshold: 1, Cooldown: time.Millisecond, Logger: slog.New(slog.DiscardHandler)}
		b := limit.NewBreaker(rdb, quick) // has a very short cooldown
		slow := quick
		slow.Cooldown, slow.MaxCooldown = 30*time.Second, 2*time.Minute
		patient := limit.NewBreaker(rdb, slow)
		fail := func() limit.BreakerState {
			t.Helper()
			testutil.Eventually(t, "a request to be allowed", func() bool {
				p, ok, _, err := b.Allow(t.Context(), "h")
				return ok && err == nil && p.Failure(t.Context(), "x") == nil
			})
			return must[limit.BreakerState](t)(patient.State(t.Context(), "h"))
		}
		since := time.Time{}
		for i, want := range []time.Duration{30 * time.Second, time.Minute, 2 * time.Minute, 2 * time.Minute} {
			s := fail()
			if got := s.Until.Sub(s.OpenedAt); got != want {
				t.Errorf("after %d trials: open for %s, want %s", i, got, want)
			}
			if _, ok, wait, err := patient.Allow(t.Context(), "h"); ok || err != nil || wait > want || wait < want-20*time.Second {
				t.Errorf("after %d trials: allowed %v, wait %s, %v; want a wait of %s", i, ok, wait, err, want)
			}
			if i == 0 {
				since = s.OpenedAt
			}
			if !s.Since.Equal(since) {
				t.Errorf("after %d trials: down since %s, want %s", i, s.Since, since)
			}
		}
		testutil.Eventually(t, "a successful trial", func() bool {
			p, ok, _, err := b.Allow(t.Context(), "h")
			return ok && err == nil && p.Success(t.Context()) == nil
		})
		if s := fail(); s.Until.Sub(s.OpenedAt) != 30*time.Second || s.Since.Before(since) {
			t.Errorf("down again: got %+v, want a first cooldown", s)
		}
	})
}

// Changed is called once when a breaker opens, in the process that opens it, and once when it closes.
func TestBreakerReportsChanges(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, rdb redis.UniversalClient) {
		var got []limit.BreakerState
		cfg := limit.BreakerConfig{Threshold: 2, Cooldown: time.Millisecond, Logger: slog.New(slog.DiscardHandler),
			Changed: func(_ context.Context, s limit.BreakerState) { got = append(got, s) }}
		a, b := limit.NewBreaker(rdb, cfg), limit.NewBreaker(rdb, cfg)
		allow := func(b *limit.Breaker) (p limit.Permit) {
			t.Helper()
			testutil.Eventually(t, "a request to be allowed", func() (ok bool) {
				var err error
				p, ok, _, err = b.Allow(t.Context(), "h")
				return ok && err == nil
			})
			return p
		}
		report := func(err error) {
			t.Helper()
			testutil.Ok(t, err)
		}
		report(allow(a).Failure(t.Context(), "502"))
		report(allow(b).Failure(t.Context(), "captcha"))
		if len(got) != 1 || got[0].Key != "h" || got[0].State != "open" || got[0].LastBlock != "captcha" || !got[0].Until.Equal(got[0].OpenedAt.Add(time.Millisecond)) {
			t.Fatalf("got %+v, want opened", got)
		}
		report(allow(a).Failure(t.Context(), "502")) // a trial
		report(allow(b).Success(t.Context()))
		if len(got) != 2 || got[1].State != "closed" {
			t.Fatalf("got %+v, want closed", got)
		}
		report(allow(b).Success(t.Context()))
		report(a.Reset(t.Context(), "h"))
		report(allow(a).Failure(t.Context(), "502"))
		report(allow(a).Failure(t.Context(), "502"))
		report(a.Reset(t.Context(), "h"))
		if len(got) != 4 || got[2].State != "open" || got[3].State != "closed" {
			t.Errorf("got %+v, want opened and closed by Reset", got)
		}
	})
}

// A list has the requests since the breaker opened and the cooldown of the process that opened it.
func TestBreakerListHasCooldownsAndCounts(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, rdb redis.UniversalClient) {
		quiet := slog.New(slog.DiscardHandler)
		slow := limit.NewBreaker(rdb, limit.BreakerConfig{Threshold: 1, Cooldown: time.Hour, Logger: quiet})
		reader := limit.NewBreaker(rdb, limit.BreakerConfig{Cooldown: time.Millisecond, Logger: quiet})
		p, _, _, err := slow.Allow(t.Context(), "h")
		if err == nil {
			err = p.Failure(t.Context(), "x")
		}
		testutil.Ok(t, err)
		testutil.Ok(t, rdb.Del(t.Context(), "muster:breakers").Err()) // as if the process had died before it listed the breaker
		for range 3 {
			if _, ok, _, err := slow.Allow(t.Context(), "h"); ok || err != nil {
				t.Fatalf("an open breaker: got allowed %v, %v", ok, err)
			}
		}
		list := must[[]limit.BreakerState](t)(reader.States(t.Context()))
		if len(list) != 1 || list[0].State != "open" || list[0].Until.Sub(list[0].OpenedAt) != time.Hour || list[0].Blocked != 3 || list[0].Allowed != 0 {
			t.Fatalf("got %+v, want one breaker, open for an hour, with 3 blocked requests", list)
		}
		testutil.Eventually(t, "a trial", func() bool {
			p, ok, _, err := reader.Allow(t.Context(), "h")
			return ok && err == nil && p.Trial()
		})
		if list = must[[]limit.BreakerState](t)(reader.States(t.Context())); list[0].Allowed != 1 || list[0].State != "half_open" {
			t.Errorf("got %+v, want one trial", list)
		}
	})
}

func TestBreakerTrialsExpire(t *testing.T) {
	t.Parallel()
	const ttl = 100 * time.Millisecond
	b := limit.NewBreaker(redistest.New(t), limit.BreakerConfig{
		Threshold: 1, Cooldown: time.Millisecond, Trials: 1, TrialTTL: ttl})
	p, _, _, _ := b.Allow(t.Context(), "h")
	_ = p.Failure(t.Context(), "x")
	var asked time.Time
	allowed := func() bool {
		asked = time.Now()
		_, ok, _, err := b.Allow(t.Context(), "h")
		return ok && err == nil
	}
	testutil.Eventually(t, "the first trial", allowed)
	// On a busy machine the first trial may have expired before the second call.
	for first := asked; allowed(); first = asked {
		if time.Since(first) < ttl {
			t.Fatal("got two concurrent trials, want one")
		}
	}
	testutil.Eventually(t, "the trial of a dead process to expire", allowed)
}
