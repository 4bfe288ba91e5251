package limit_test

import (
	"bytes"
	"log"
	"log/slog"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"muster/internal/testutil"
	"muster/tasks/limit"
	"muster/tasks/redistest"
)

func TestMain(m *testing.M) {
	redistest.Main(m, func() error { return goleak.Find() })
}

func must[T any](t *testing.T) func(T, error) T {
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

// away is a Redis that nothing listens at.
func away(t *testing.T) redis.UniversalClient {
	rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", MaxRetries: -1, DialTimeout: time.Second})
	t.Cleanup(func() { _ = rdb.Close() })
	return rdb
}

func TestHostKey(t *testing.T) {
	t.Parallel()
	for url, want := range map[string]string{
		"https://api.crossref.org/works":       "api.crossref.org",
		"https://api.example.com:443/x":        "api.example.com",
		"http://example.com:80/":               "example.com",
		"http://example.com:443/":              "example.com:443",
		"https://example.com:80/":              "example.com:80",
		"http://example.com:8080/d":            "example.com:8080",
		"https://API.Crossref.ORG/":            "api.crossref.org",
		"HTTPS://API.Crossref.ORG:443/":        "api.crossref.org",
		"https://user:pass@example.com/":       "example.com",
		"user:pass@example.com/x":              "example.com",
		"http://[::1]:8080/a":                  "[::1]:8080",
		"http://[2001:DB8::1]/":                "[2001:db8::1]",
		"https://[2001:db8::1]:443/":           "[2001:db8::1]",
		"https://[2001:db8:0:0::1]/":           "[2001:db8::1]",
		"https://example.com./x":               "example.com",
		"http://bücher.de/":                    "xn--bcher-kva.de",
		"http://xn--bcher-kva.de/":             "xn--bcher-kva.de",
		"example.com/path":                     "example.com",
		"example.com:8080/path":                "example.com:8080",
		"//example.com/path":                   "example.com",
		"":                                     "",
		"  ":                                   "",
		"http://example.com:99999/":            "http://example.com:99999/",
		"http://example.com:080/":              "example.com",
		"http://example.com:/":                 "example.com",
		"http://":                              "http://",
		"http://a b/":                          "http://a b/",
		"::::":                                 "::::",
		"http://under_score.example/":          "under_score.example",
		"http://127.0.0.1:8080":                "127.0.0.1:8080",
		"ftp://example.com:80/":                "example.com:80",
		"http://[fe80::1%25eth0]/":             "[fe80::1%eth0]",
		"\x00":                                 "\x00",
		"http://%zz/":                          "http://%zz/",
		"http://me:secret@example.com:99999/":  "http://example.com:99999/",
		"http://me:sec/ret@a b/":               "http://a b/",
		"me:secret@[x]:y":                      "[x]:y",
		"https://example.com?x=http://other/":  "example.com",
		"https://example.com#http://other.org": "example.com",
	} {
		if got := limit.HostKey(url); got != want {
			t.Errorf("HostKey(%q) is %q, want %q", url, got, want)
		}
	}
}

// What is no URL has a key that is safe to store, and a reason.
func TestHostKeyWarns(t *testing.T) {
	var said bytes.Buffer // not in parallel: the log is everybody's
	log.SetOutput(&said)
	t.Cleanup(func() { log.SetOutput(os.Stderr) })
	for url, why := range map[string]string{
		"http://me:secret@example.com:99999/x": "the port 99999 is above 65535",
		"http://me:secret@a b/":                "cannot be read as a URL",
		"http://me:sec%ret@example.com/":       "cannot be read as a URL",
		"http://":                              "has no host",
		"1:2:3":                                "is no IPv6 address",
		"http://" + strings.Repeat("x", 254):   "the host has 254 bytes",
	} {
		said.Reset()
		key := limit.HostKey(url)
		for _, want := range []string{"WARN", why, key} {
			if !strings.Contains(said.String(), want) {
				t.Errorf("%s: it said %q, want %q", url, &said, want)
			}
		}
		if strings.Contains(said.String()+key, "secret") {
			t.Errorf("%s: key %s, said %s", url, key, &said)
		}
	}
	said.Reset()
	if limit.HostKey("http://example.com:80/"); said.Len() > 0 {
		t.Errorf("a good host: %s", &said)
	}
}

func FuzzHostKey(f *testing.F) {
	f.Add("https://user:pass@example.com:443/x")
	f.Fuzz(func(t *testing.T, url string) {
		key := limit.HostKey(url)
		if again := limit.HostKey(url); again != key {
			t.Fatalf("%q has keys %q and %q", url, key, again)
		}
	})
}

func TestBreaker(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, rdb redis.UniversalClient) {
		ctx := t.Context()
		// Two breakers are two processes; for a third the cooldown is over when it is not for them.
		cfg := limit.BreakerConfig{Threshold: 3, Cooldown: time.Minute, TrialTTL: time.Minute}
		a, b := limit.NewBreaker(rdb, cfg), limit.NewBreaker(rdb, cfg)
		cfg.Cooldown = time.Millisecond
		cool := limit.NewBreaker(rdb, cfg)
		const host = "example.com:8080"
		allow := func(b *limit.Breaker) (limit.Permit, bool) {
			t.Helper()
			p, ok, wait, err := b.Allow(ctx, host)
			if err != nil || !ok && (wait <= 0 || wait > time.Minute) {
				t.Fatalf("wait %v, %v", wait, err)
			}
			return p, ok
		}
		state := func(want string) limit.BreakerState {
			t.Helper()
			s := must[limit.BreakerState](t)(b.State(ctx, host))
			if s.State != want {
				t.Fatalf("state is %+v, want %s", s, want)
			}
			return s
		}
		fail := func(p limit.Permit, block string) {
			t.Helper()
			if err := p.Failure(ctx, block); err != nil {
				t.Fatal(err)
			}
		}
		succeed := func(p limit.Permit) {
			t.Helper()
			if err := p.Success(ctx); err != nil {
				t.Fatal(err)
			}
		}

		p, _ := allow(a)
		fail(p, "x")
		fail(p, "x")
		succeed(p) // a success in between starts the count anew
		fail(p, "x")
		fail(p, "x")
		if s := state("closed"); s.Failures != 2 {
			t.Fatalf("got %+v", s)
		}
		fail(p, "captcha")
		opened := state("open")
		if opened.LastBlock != "captcha" {
			t.Fatalf("got %+v", opened)
		}
		if _, ok := allow(b); ok {
			t.Fatal("an open breaker lets through")
		}
		fail(p, "late") // failures of requests from before change nothing
		succeed(p)
		if s := state("open"); s.LastBlock != "captcha" || !s.OpenedAt.Equal(opened.OpenedAt) {
			t.Fatalf("got %+v after %+v", s, opened)
		}
		if list := must[[]limit.BreakerState](t)(b.States(ctx)); len(list) != 1 || list[0].Key != host {
			t.Fatalf("got %+v", list)
		}

		testutil.Eventually(t, "the cooldown to pass", func() bool { return must[limit.BreakerState](t)(cool.State(ctx, host)).State == "half_open" })
		one, ok1 := allow(cool)
		two, ok2 := allow(b)
		if _, ok3 := allow(a); !ok1 || !ok2 || ok3 || !one.Trial() || !two.Trial() {
			t.Fatalf("half open let through %v %v %v, want two", ok1, ok2, ok3)
		}
		if err := two.Cancel(ctx); err != nil {
			t.Fatal(err)
		}
		two, ok := allow(a)
		if !ok {
			t.Fatal("a cancelled trial's place is not free")
		}
		fail(one, "block")
		if s := state("open"); s.LastBlock != "block" || !s.OpenedAt.After(opened.OpenedAt) {
			t.Fatalf("got %+v", s)
		}
		succeed(two) // of the trial round that has failed already
		state("open")

		testutil.Eventually(t, "the cooldown to pass again", func() bool { one, ok = allow(cool); return ok })
		succeed(one)
		if s := state("closed"); s.Failures != 0 {
			t.Fatalf("got %+v", s)
		}
		if list := must[[]limit.BreakerState](t)(b.States(ctx)); len(list) != 0 {
			t.Fatalf("got %+v", list)
		}
		p, _ = allow(a)
		for range 3 {
			fail(p, "x")
		}
		if err := a.Reset(ctx, host); err != nil {
			t.Fatal(err)
		}
		if s := state("closed"); s.LastBlock != "" || !s.OpenedAt.IsZero() {
			t.Fatalf("got %+v", s)
		}
	})
}

// A key that stays down is tried less and less often, until it is up again.
func TestBreakerCooldownDoubles(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, rdb redis.UniversalClient) {
		quick := limit.BreakerConfig{Threshold: 1, Cooldown: time.Millisecond, Logger: slog.New(slog.DiscardHandler)}
		b := limit.NewBreaker(rdb, quick) // for it the cooldown is over at once
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
		testutil.Eventually(t, "a trial that succeeds", func() bool {
			p, ok, _, err := b.Allow(t.Context(), "h")
			return ok && err == nil && p.Success(t.Context()) == nil
		})
		if s := fail(); s.Until.Sub(s.OpenedAt) != 30*time.Second || s.Since.Before(since) {
			t.Errorf("down again: got %+v, want a first cooldown", s)
		}
	})
}

func TestBreakerTrialsLapse(t *testing.T) {
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
	// On a busy machine the second question may come after the first trial has lapsed.
	for first := asked; allowed(); first = asked {
		if time.Since(first) < ttl {
			t.Fatal("two trials at a time")
		}
	}
	testutil.Eventually(t, "the trial of a dead process to lapse", allowed)
}

func TestWithoutRedis(t *testing.T) {
	t.Parallel()
	rdb, ctx := away(t), t.Context()
	bucket := limit.NewTokenBucket(rdb, limit.BucketConfig{FailOpen: true})
	if ok, _, err := bucket.Try(ctx, "h", 1); !ok || err != nil {
		t.Errorf("bucket: %v, %v", ok, err)
	}
	pacer := limit.NewPacer(rdb, limit.PacerConfig{FailOpen: true})
	if _, err := pacer.Wait(ctx, "h"); err != nil {
		t.Errorf("pacer: %v", err)
	}
	if err := pacer.NotBefore(ctx, "h", time.Now().Add(time.Hour)); err != nil {
		t.Errorf("pacer: %v", err)
	}
	breaker := limit.NewBreaker(rdb, limit.BreakerConfig{FailOpen: true})
	if p, ok, _, err := breaker.Allow(ctx, "h"); !ok || err != nil || p.Failure(ctx, "") != nil {
		t.Errorf("breaker: %v, %v", ok, err)
	}
	slots := limit.NewKeyedLimiter(rdb, limit.KeyedConfig{FailOpen: true})
	if s, err := slots.Acquire(ctx, "h"); err != nil || s.Release(ctx) != nil {
		t.Errorf("slots: %v", err)
	}

	// Closed, each says so.
	if ok, _, err := limit.NewTokenBucket(rdb, limit.BucketConfig{}).Try(ctx, "h", 1); ok || err == nil {
		t.Error("a closed bucket lets through")
	}
	if _, ok, err := limit.NewPacer(rdb, limit.PacerConfig{}).Reserve(ctx, "h", 0); ok || err == nil {
		t.Error("a closed pacer lets through")
	}
	if _, ok, _, err := limit.NewBreaker(rdb, limit.BreakerConfig{}).Allow(ctx, "h"); ok || err == nil {
		t.Error("a closed breaker lets through")
	}
	if s, err := limit.NewKeyedLimiter(rdb, limit.KeyedConfig{}).TryAcquire(ctx, "h"); s != nil || err == nil {
		t.Error("closed slots let through")
	}
	for _, b := range []*limit.Breaker{
		limit.NewBreaker(rdb, limit.BreakerConfig{Disabled: true}), limit.NewBreaker(rdb, limit.BreakerConfig{}),
	} {
		key := ""
		if _, ok, _, err := b.Allow(ctx, key); !ok || err != nil {
			t.Errorf("no key: %v, %v", ok, err)
		}
	}
}

// No script touches two slots of a cluster.
func TestOnCluster(t *testing.T) {
	t.Parallel()
	rdb, ctx := redistest.Cluster(t), t.Context()
	for _, key := range []string{"example.com:80", "{a}b", string(make([]byte, 300)), ""} {
		s := must[*limit.Slot](t)(limit.NewKeyedLimiter(rdb, limit.KeyedConfig{}).Acquire(ctx, key))
		if err := s.Release(ctx); err != nil {
			t.Error(err)
		}
		if _, err := limit.NewTokenBucket(rdb, limit.BucketConfig{}).Wait(ctx, key, 1); err != nil {
			t.Error(err)
		}
		p := limit.NewPacer(rdb, limit.PacerConfig{})
		if _, err := p.Wait(ctx, key); err != nil || p.NotBefore(ctx, key, time.Now().Add(time.Second)) != nil {
			t.Error(err)
		}
		b := limit.NewBreaker(rdb, limit.BreakerConfig{Threshold: 1})
		permit, _, _, err := b.Allow(ctx, key)
		if err != nil || permit.Failure(ctx, "x") != nil || b.Reset(ctx, key) != nil {
			t.Error(err)
		}
	}
}
