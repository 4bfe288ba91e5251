package limit_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"muster/tasks/limit"
	"muster/tasks/redistest"
)

// useLimits uses each key of the limits, and returns the errors.
func useLimits(ctx context.Context, rdb redis.UniversalClient, key string) (errs []error) {
	note := func(err error) {
		if err != nil {
			errs = append(errs, err)
		}
	}
	slots := limit.NewKeyedLimiter(rdb, limit.KeyedConfig{})
	s, err := slots.TryAcquire(ctx, key)
	note(err)
	if s != nil {
		note(s.Release(ctx))
	}
	s, err = slots.TryAcquireFor(ctx, key, time.Millisecond) // with a place in the line
	note(err)
	if s != nil {
		note(s.Release(ctx))
	}
	_, err = slots.Held(ctx, key)
	note(err)
	bucket := limit.NewTokenBucket(rdb, limit.BucketConfig{})
	_, _, err = bucket.Try(ctx, key, 1)
	note(err)
	note(bucket.Refund(ctx, key, 1))
	pacer := limit.NewPacer(rdb, limit.PacerConfig{Default: limit.Pace{Interval: time.Hour}})
	_, _, err = pacer.Reserve(ctx, key, time.Minute)
	note(err)
	note(pacer.NotBefore(ctx, key, time.Now().Add(time.Minute)))
	b := limit.NewBreaker(rdb, limit.BreakerConfig{Threshold: 1, Cooldown: time.Millisecond, MaxCooldown: time.Millisecond, Trials: 1})
	for range 3 {
		p, ok, _, err := b.Allow(ctx, key)
		note(err)
		if ok {
			note(p.Failure(ctx, "captcha"))
		}
	}
	_, err = b.State(ctx, key)
	note(err)
	_, err = b.States(ctx)
	note(err)
	return errs
}

// Whatever key of a limit is damaged: values are passed over, and of a key of another type the error says that it must be
// deleted. The limits of other keys hold as before.
func TestLimitsSurviveDamagedKeys(t *testing.T) {
	t.Parallel()
	const p, key = "muster:", ":{host}"
	redistest.EachDamage(t, "keys.go", map[string][]string{
		"slotKeys":    {p + "limit" + key + ":slots", p + "limit" + key + ":waiters", p + "limit" + key + ":alive", p + "limit" + key + ":max"},
		"bucketKey":   {p + "bucket" + key},
		"paceKey":     {p + "pace" + key},
		"breakerKeys": {p + "breaker" + key, p + "breaker" + key + ":trials"}, "breakerIndex": {p + "breakers"},
	}, []string{"tag"}, func(t *testing.T, keys []string, d redistest.Damage) {
		for _, damaged := range keys {
			damageLimit(t, damaged, d)
		}
	})
}

func damageLimit(t *testing.T, damaged string, d redistest.Damage) {
	rdb, ctx := redistest.New(t), t.Context()
	slots := limit.NewKeyedLimiter(rdb, limit.KeyedConfig{})
	if err := slots.SetLimit(ctx, "host", 10); err != nil {
		t.Fatal(err)
	}
	if strings.HasSuffix(damaged, ":waiters") || strings.HasSuffix(damaged, ":alive") {
		if err := slots.SetLimit(ctx, "host", 1); err != nil {
			t.Fatal(err)
		}
	}
	held, err := slots.TryAcquire(ctx, "host")
	if err != nil || held == nil {
		t.Fatal(held, err)
	}
	waiting, stop := context.WithCancel(ctx)
	over := make(chan struct{})
	go func() {
		defer close(over)
		if s, _ := limit.NewKeyedLimiter(rdb, limit.KeyedConfig{}).Acquire(waiting, "host"); s != nil {
			_ = s.Release(ctx)
		}
	}()
	defer func() { stop(); <-over }()
	if errs := useLimits(ctx, rdb, "host"); len(errs) > 0 {
		t.Fatal(errs)
	}
	b := limit.NewBreaker(rdb, limit.BreakerConfig{Threshold: 1, Trials: 1})
	if _, _, _, err := b.Allow(ctx, "host"); err != nil { // a trial
		t.Fatal(err)
	}
	if rdb.Exists(ctx, damaged).Val() == 0 { // what is there at times
		if err := rdb.ZAdd(ctx, damaged, redis.Z{Score: float64(time.Now().Add(time.Hour).UnixMilli()), Member: "somebody"}).Err(); err != nil {
			t.Fatal(err)
		}
	}
	d.Do(t, rdb, damaged)
	for _, err := range useLimits(ctx, rdb, "host") {
		if text := err.Error(); d.Name != "of another type" || !strings.Contains(text, "delete the key") || !strings.Contains(text, damaged) {
			t.Errorf("%s: got %q, want none, or one that says what to delete", damaged, text)
		}
	}
	if errs := useLimits(ctx, rdb, "other"); len(errs) > 0 && damaged != "muster:breakers" {
		t.Errorf("%s: another host: %v", damaged, errs)
	}
	if err := b.Reset(ctx, "host"); err != nil {
		t.Errorf("%s: reset: %v", damaged, err)
	}
	if err := rdb.Del(ctx, damaged).Err(); err != nil {
		t.Fatal(err)
	}
	if errs := useLimits(ctx, rdb, "host"); len(errs) > 0 {
		t.Errorf("%s: once it was deleted: %v", damaged, errs)
	}
	_ = held.Release(ctx) // its key may be gone
}
