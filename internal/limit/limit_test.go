package limit_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"muster/internal/limit"
	"muster/internal/redistest"
	"muster/internal/testutil"
)

func TestMain(m *testing.M) {
	redistest.Main(m, func() error { return goleak.Find() })
}

func must[T any](t *testing.T) func(T, error) T {
	return func(v T, err error) T {
		t.Helper()
		testutil.Ok(t, err)
		return v
	}
}

// away returns a client with the address of a closed port.
func away(t *testing.T) redis.UniversalClient {
	rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", MaxRetries: -1, DialTimeout: time.Second})
	t.Cleanup(func() { _ = rdb.Close() })
	return rdb
}

func TestWithoutRedis(t *testing.T) {
	t.Parallel()
	rdb, ctx := away(t), t.Context()
	bucket := limit.NewTokenBucket(rdb, limit.BucketConfig{FailOpen: true})
	if got, err := bucket.Take(ctx, "h", 1); !got.OK || err != nil {
		t.Errorf("bucket: got %v, %v; want true", got, err)
	}
	pacer := limit.NewPacer(rdb, limit.PacerConfig{FailOpen: true})
	if _, ok, err := pacer.Reserve(ctx, "h", 0); !ok || err != nil {
		t.Errorf("pacer: got %v, %v; want true", ok, err)
	}
	if err := pacer.NotBefore(ctx, "h", time.Now().Add(time.Hour)); err != nil {
		t.Errorf("pacer: %v", err)
	}
	breaker := limit.NewBreaker(rdb, limit.BreakerConfig{FailOpen: true})
	if p, ok, _, err := breaker.Allow(ctx, "h"); !ok || err != nil || p.Failure(ctx, "") != nil {
		t.Errorf("breaker: got %v, %v; want true", ok, err)
	}
	slots := limit.NewKeyedLimiter(rdb, limit.KeyedConfig{FailOpen: true})
	if s, err := slots.Acquire(ctx, "h"); err != nil || s.Release(ctx) != nil {
		t.Errorf("slots: %v", err)
	}

	// A slot whose reply was lost is released like any.
	lost := redistest.NewFault(redistest.ReplyLost, 1)
	slots = limit.NewKeyedLimiter(lost.Client(t, redistest.URL(t)), limit.KeyedConfig{FailOpen: true})
	for _, key := range []string{"loaded", "lost"} { // the first call of a script is two calls
		if key == "lost" {
			lost.Arm()
		}
		testutil.Ok(t, must[*limit.Slot](t)(slots.Acquire(ctx, key)).Release(ctx))
		if s := must[*limit.Slot](t)(slots.TryAcquire(ctx, key)); s == nil || s.Release(ctx) != nil {
			t.Errorf("slot of %s: not released", key)
		}
	}

	// Without FailOpen, all limits return an error.
	if got, err := limit.NewTokenBucket(rdb, limit.BucketConfig{}).Take(ctx, "h", 1); got.OK || err == nil {
		t.Errorf("bucket without FailOpen: got %v, %v; want an error", got, err)
	}
	if _, ok, err := limit.NewPacer(rdb, limit.PacerConfig{}).Reserve(ctx, "h", 0); ok || err == nil {
		t.Errorf("pacer without FailOpen: got %v, %v; want an error", ok, err)
	}
	if _, ok, _, err := limit.NewBreaker(rdb, limit.BreakerConfig{}).Allow(ctx, "h"); ok || err == nil {
		t.Errorf("breaker without FailOpen: got %v, %v; want an error", ok, err)
	}
	if s, err := limit.NewKeyedLimiter(rdb, limit.KeyedConfig{}).TryAcquire(ctx, "h"); s != nil || err == nil {
		t.Errorf("slots without FailOpen: got %v, %v; want an error", s, err)
	}
	if _, ok, _, err := limit.NewBreaker(rdb, limit.BreakerConfig{}).Allow(ctx, ""); !ok || err != nil {
		t.Errorf("no key: got %v, %v; want true", ok, err)
	}
}

// All keys of a script are in one slot of a cluster.
func TestOnCluster(t *testing.T) {
	t.Parallel()
	rdb, ctx := redistest.Cluster(t), t.Context()
	for _, key := range []string{"example.com:80", "{a}b", string(make([]byte, 300)), ""} {
		s := must[*limit.Slot](t)(limit.NewKeyedLimiter(rdb, limit.KeyedConfig{}).Acquire(ctx, key))
		if err := s.Release(ctx); err != nil {
			t.Error(err)
		}
		if _, err := limit.NewTokenBucket(rdb, limit.BucketConfig{Default: limit.PerMinute(1)}).Take(ctx, key, 1); err != nil {
			t.Error(err)
		}
		p := limit.NewPacer(rdb, limit.PacerConfig{})
		if _, _, err := p.Reserve(ctx, key, 0); err != nil || p.NotBefore(ctx, key, time.Now().Add(time.Second)) != nil {
			t.Error(err)
		}
		b := limit.NewBreaker(rdb, limit.BreakerConfig{Threshold: 1})
		permit, _, _, err := b.Allow(ctx, key)
		if err != nil || permit.Failure(ctx, "x") != nil || b.Reset(ctx, key) != nil {
			t.Error(err)
		}
	}
}

// The longer one of a specific interval and that of all keys applies, over all processes.
func TestPacer(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, rdb redis.UniversalClient) {
		ctx := t.Context()
		a, b := limit.NewPacer(rdb, limit.PacerConfig{Interval: time.Minute}), limit.NewPacer(rdb, limit.PacerConfig{})
		b.SetInterval(time.Minute)
		for key, c := range map[string]struct{ apart, low, high time.Duration }{
			"default":  {0, 50 * time.Second, time.Minute},
			"longer":   {time.Hour, 59 * time.Minute, time.Hour},
			"shorter":  {time.Second, 50 * time.Second, time.Minute},
			"negative": {-time.Hour, 50 * time.Second, time.Minute},
		} {
			if wait, ok, err := a.Reserve(ctx, key, c.apart); wait != 0 || !ok || err != nil {
				t.Errorf("%s, the first: got %v, %v, %v; want no wait", key, wait, ok, err)
			}
			for range 2 { // a free time that was not reserved remains free
				if wait, ok, err := b.Reserve(ctx, key, c.apart); wait < c.low || wait > c.high || ok || err != nil {
					t.Errorf("%s, the second: got %v, %v, %v; want %v to %v, not taken", key, wait, ok, err, c.low, c.high)
				}
			}
		}
		a.SetInterval(0)
		reserve := func(interval time.Duration) (time.Duration, bool) {
			t.Helper()
			wait, ok, err := a.Reserve(ctx, "free", interval)
			testutil.Ok(t, err)
			return wait, ok
		}
		start := time.Now()
		for range 5 {
			testutil.Eventually(t, "the key is free", func() bool { _, ok := reserve(30 * time.Millisecond); return ok })
		}
		if d := time.Since(start); d < 119*time.Millisecond {
			t.Fatalf("five uses took %v, want 120ms or more", d)
		}
		for range 2 {
			testutil.Ok(t, b.NotBefore(ctx, "free", time.Now().Add(time.Hour)))
			_ = b.NotBefore(ctx, "free", time.Now().Add(time.Minute)) // earlier: no effect
			_ = b.NotBefore(ctx, "free", time.Now().Add(-time.Minute))
		}
		if wait, ok := reserve(0); ok || wait < 59*time.Minute {
			t.Fatalf("got %v, %v; want an hour, not taken", wait, ok)
		}
	})
}

// After the clock of Redis is set back by an hour, no wait exceeds its limit, and limits continue to work.
func TestRedisClockSetBack(t *testing.T) {
	t.Parallel()
	const key, hour = "k", time.Hour
	for name, test := range map[string]func(t *testing.T, rdb redis.UniversalClient, jump func(time.Duration)){
		"pacer": func(t *testing.T, rdb redis.UniversalClient, jump func(time.Duration)) {
			p := limit.NewPacer(rdb, limit.PacerConfig{Interval: time.Minute})
			reserve := func() (time.Duration, bool) {
				wait, ok, err := p.Reserve(t.Context(), key, 0)
				testutil.Ok(t, err)
				return wait, ok
			}
			if _, ok := reserve(); !ok {
				t.Fatal("the first: got none, want one")
			}
			jump(-hour)
			for range 2 {
				if wait, ok := reserve(); ok || wait > time.Minute {
					t.Errorf("got a wait of %v, %v, want at most a minute", wait, ok)
				}
			}
			testutil.Ok(t, p.NotBefore(t.Context(), key, time.Now().Add(2*time.Minute)))
			jump(-hour)
			if wait, ok := reserve(); ok || wait > 2*time.Minute {
				t.Errorf("after NotBefore: got a wait of %v, %v, want at most two minutes", wait, ok)
			}
			jump(-hour)
			testutil.Ok(t, p.NotBefore(t.Context(), key, time.Now().Add(time.Second)))
			jump(2 * time.Minute)
			if wait, ok := reserve(); !ok {
				t.Errorf("after two minutes: got a wait of %v, want none", wait)
			}
		},
		"bucket": func(t *testing.T, rdb redis.UniversalClient, jump func(time.Duration)) {
			b := limit.NewTokenBucket(rdb, limit.BucketConfig{Default: limit.PerMinute(1)})
			take := func() bool {
				got, err := b.Take(t.Context(), key, 1)
				if err != nil || got.Wait > time.Minute {
					t.Errorf("got %+v, %v, want a wait of at most a minute", got, err)
				}
				return got.OK
			}
			take()
			jump(-hour)
			if take() {
				t.Error("got a token from an empty bucket")
			}
			jump(time.Minute)
			if !take() {
				t.Error("after a minute: got no token, want one")
			}
		},
		"breaker": func(t *testing.T, rdb redis.UniversalClient, jump func(time.Duration)) {
			b := limit.NewBreaker(rdb, limit.BreakerConfig{Threshold: 1, Cooldown: time.Minute, Trials: 1, TrialTTL: time.Minute})
			allow := func() (limit.Permit, bool) {
				p, ok, wait, err := b.Allow(t.Context(), key)
				if err != nil || wait > time.Minute {
					t.Errorf("got a wait of %v, %v, want at most a minute", wait, err)
				}
				return p, ok
			}
			p, _ := allow()
			testutil.Ok(t, p.Failure(t.Context(), "captcha"))
			jump(-hour)
			for range 2 {
				if _, ok := allow(); ok {
					t.Error("got a permit from an open breaker")
				}
			}
			jump(time.Minute)
			if p, ok := allow(); !ok || !p.Trial() {
				t.Error("after the cooldown: got no trial, want one")
			}
			jump(-hour)
			if _, ok := allow(); ok {
				t.Error("got a second trial, want one")
			}
			jump(time.Minute + time.Second)
			if p, ok := allow(); !ok || !p.Trial() {
				t.Error("after the TTL of the lost trial: got no trial, want one")
			}
		},
		"slots": func(t *testing.T, rdb redis.UniversalClient, jump func(time.Duration)) {
			dead, live := limit.NewKeyedLimiter(rdb, limit.KeyedConfig{Default: 1}), limit.NewKeyedLimiter(rdb, limit.KeyedConfig{Default: 1})
			lost, err := dead.TryAcquire(t.Context(), key)
			if lost == nil || err != nil {
				t.Fatalf("got %v, %v, want a slot", lost, err)
			}
			defer func() { _ = lost.Release(context.WithoutCancel(t.Context())) }()
			jump(-hour)
			if slot, err := live.TryAcquire(t.Context(), key); slot != nil || err != nil {
				t.Errorf("got %v, %v, want no slot", slot, err)
			}
			jump(31 * time.Second)
			slot, err := live.TryAcquire(t.Context(), key)
			if slot == nil || err != nil {
				t.Fatalf("after the TTL of the dead holder: got %v, %v, want a slot", slot, err)
			}
			if err := slot.Release(t.Context()); err != nil {
				t.Error(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rdb, jump := redistest.Clock(t)
			test(t, rdb, jump)
		})
	}
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
		if got, _ := limit.ParseHostKey(url); got != want {
			t.Errorf("the key of %q is %q, want %q", url, got, want)
		}
	}
}

// A string that is not a URL has a key without credentials, and an error without them.
func TestHostKeyErrors(t *testing.T) {
	t.Parallel()
	for url, want := range map[string]string{
		"http://me:secret@example.com:99999/x": "the port 99999 is above 65535",
		"http://me:secret@a b/":                "invalid URL",
		"http://me:sec%ret@example.com/":       "invalid URL",
		"http://":                              "has no host",
		"1:2:3":                                "is not an IPv6 address",
		"http://" + strings.Repeat("x", 254):   "the host has 254 bytes",
	} {
		key, err := limit.ParseHostKey(url)
		if key == "" || err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error()+key, "secret") {
			t.Errorf("%s: got %q, %v; want a key and an error %q, without the secret", url, key, err, want)
		}
	}
	if _, err := limit.ParseHostKey("http://example.com:80/"); err != nil {
		t.Errorf("a good host: %v", err)
	}
}

func FuzzHostKey(f *testing.F) {
	f.Add("https://user:pass@example.com:443/x")
	f.Fuzz(func(t *testing.T, url string) {
		key, _ := limit.ParseHostKey(url)
		if again, _ := limit.ParseHostKey(url); again != key {
			t.Fatalf("%q: got key %q, want %q again", url, again, key)
		}
	})
}
