package limit_test

import (
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
	if ok, _, err := bucket.Try(ctx, "h", 1); !ok || err != nil {
		t.Errorf("bucket: got %v, %v; want true", ok, err)
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
		t.Errorf("breaker: got %v, %v; want true", ok, err)
	}
	slots := limit.NewKeyedLimiter(rdb, limit.KeyedConfig{FailOpen: true})
	if s, err := slots.Acquire(ctx, "h"); err != nil || s.Release(ctx) != nil {
		t.Errorf("slots: %v", err)
	}

	// Without FailOpen, all limits return an error.
	if ok, _, err := limit.NewTokenBucket(rdb, limit.BucketConfig{}).Try(ctx, "h", 1); ok || err == nil {
		t.Errorf("bucket without FailOpen: got %v, %v; want an error", ok, err)
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
	for _, b := range []*limit.Breaker{
		limit.NewBreaker(rdb, limit.BreakerConfig{Disabled: true}), limit.NewBreaker(rdb, limit.BreakerConfig{}),
	} {
		key := ""
		if _, ok, _, err := b.Allow(ctx, key); !ok || err != nil {
			t.Errorf("no key: got %v, %v; want true", ok, err)
		}
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
