package limit_test

import (
	"context"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"muster/internal/testutil"
	"muster/tasks/limit"
	"muster/tasks/redistest"
)

// After the clock of Redis is set back by an hour, no wait exceeds its limit, and limits continue to work.
func TestRedisClockSetBack(t *testing.T) {
	t.Parallel()
	const key, hour = "k", time.Hour
	for name, test := range map[string]func(t *testing.T, rdb redis.UniversalClient, jump func(time.Duration)){
		"pacer": func(t *testing.T, rdb redis.UniversalClient, jump func(time.Duration)) {
			p := limit.NewPacer(rdb, limit.PacerConfig{Default: limit.Pace{Interval: time.Minute}})
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
