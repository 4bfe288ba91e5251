package limit

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"time"

	"github.com/redis/go-redis/v9"
)

// Rate is the size and refill rate of a bucket.
type Rate struct {
	Capacity float64 // size of the bucket, in tokens
	Burst    float64 // additional size of the bucket; Capacity+Burst tokens are available at once
	PerSec   float64 // tokens added per second; 0 means none
}

// PerMinute returns a rate of n tokens per minute. The bucket holds up to n tokens.
func PerMinute(n float64) Rate { return Rate{Capacity: n, PerSec: n / 60} }

func (r Rate) size() float64 { return r.Capacity + r.Burst }

// BucketConfig configures a TokenBucket.
type BucketConfig struct {
	Namespace string          // prefix of all keys. Defaults to "muster".
	Default   Rate            // rate of keys that are not in PerKey. Defaults to {Capacity: 5, Burst: 2, PerSec: 1}.
	PerKey    map[string]Rate // rates by key
	FailOpen  bool            // allow all requests while Redis is unreachable. Defaults to false.
	Logger    *slog.Logger    // Defaults to slog.Default().
}

// A TokenBucket limits the rate of each key across all processes. A bucket is initially full. It is safe for
// concurrent use.
type TokenBucket struct {
	rdb  redis.UniversalClient
	cfg  BucketConfig
	warn *warner
}

// NewTokenBucket returns a token bucket limiter. It does no I/O.
func NewTokenBucket(rdb redis.UniversalClient, cfg BucketConfig) *TokenBucket {
	if cfg.Namespace == "" {
		cfg.Namespace = "muster"
	}
	if cfg.Default == (Rate{}) {
		cfg.Default = Rate{Capacity: 5, Burst: 2, PerSec: 1}
	}
	return &TokenBucket{rdb: rdb, cfg: cfg, warn: newWarner(cfg.Logger, "rate")}
}

// Rate returns the rate of a key.
func (b *TokenBucket) Rate(key string) Rate {
	if r, ok := b.cfg.PerKey[key]; ok {
		return r
	}
	return b.cfg.Default
}

// Try takes n tokens if they are available. Otherwise it returns the time until they are, or ErrNever.
func (b *TokenBucket) Try(ctx context.Context, key string, n float64) (ok bool, wait time.Duration, err error) {
	t, err := b.take(ctx, key, n, 0)
	return t.OK, t.Wait, err
}

// TakeResult is the result of Take.
type TakeResult struct {
	OK   bool          // the tokens were taken
	Wait time.Duration // time until enough tokens are available; 0 if OK
	Left int           // whole tokens in the bucket after the call
}

// Take is like Try, but also returns the remaining tokens. With n = 0 it only reads the state of the bucket.
func (b *TokenBucket) Take(ctx context.Context, key string, n float64) (TakeResult, error) {
	return b.take(ctx, key, n, 0)
}

// Reserve takes n tokens, even if they are not available yet, and returns the time to wait before using them. If that exceeds
// patience it takes none and returns the time with ErrTooLong or ErrNever.
func (b *TokenBucket) Reserve(ctx context.Context, key string, n float64, patience time.Duration) (wait time.Duration, err error) {
	t, err := b.take(ctx, key, n, patience)
	if err == nil && !t.OK {
		err = fmt.Errorf("%v for %g tokens of %s: %w", t.Wait, n, key, ErrTooLong)
	}
	return t.Wait, err
}

// Wait takes n tokens, waits until they are available, and returns the duration. It fails immediately if the deadline
// of ctx is earlier. If ctx is canceled while waiting, the tokens are refunded.
func (b *TokenBucket) Wait(ctx context.Context, key string, n float64) (waited time.Duration, err error) {
	wait, err := b.Reserve(ctx, key, n, patienceOf(ctx))
	if err != nil {
		return 0, err
	}
	start := time.Now()
	if err := sleep(ctx, wait); err != nil {
		back, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		return time.Since(start), errors.Join(err, b.Refund(back, key, n))
	}
	return time.Since(start), nil
}

// patienceOf returns the longest wait that ends before the deadline of ctx.
func patienceOf(ctx context.Context) time.Duration {
	end, ok := ctx.Deadline()
	if !ok {
		return math.MaxInt64
	}
	return max(0, time.Until(end))
}

// Refund returns n tokens, up to the size of the bucket.
func (b *TokenBucket) Refund(ctx context.Context, key string, n float64) error {
	if n <= 0 {
		return nil
	}
	_, err := b.take(ctx, key, -n, 0)
	return err
}

// Reset fills the buckets of keys.
func (b *TokenBucket) Reset(ctx context.Context, keys ...string) error {
	for _, k := range keys {
		if err := b.rdb.Del(ctx, bucketKey(b.cfg.Namespace, k)).Err(); err != nil {
			return fmt.Errorf("reset rate of %s: %w", k, err)
		}
	}
	return nil
}

func (b *TokenBucket) take(ctx context.Context, key string, n float64, patience time.Duration) (TakeResult, error) {
	r := b.Rate(key)
	if math.IsNaN(n) || math.IsInf(n, 0) {
		return TakeResult{}, fmt.Errorf("take %g tokens of %s: the number of tokens must be finite", n, key)
	}
	v, err := scripts["take"].Run(ctx, b.rdb, []string{bucketKey(b.cfg.Namespace, key)},
		n, r.size(), math.Max(r.PerSec, 0), patience.Microseconds()).Int64Slice()
	if err != nil {
		if b.cfg.FailOpen && ctx.Err() == nil {
			b.warn.open(err)
			return TakeResult{OK: true, Left: int(r.size())}, nil
		}
		return TakeResult{}, fmt.Errorf("take %g tokens of %s: %w", n, key, err)
	}
	if v[1] < 0 {
		return TakeResult{}, fmt.Errorf("take %g tokens of %s, limited to %g with %g per second: %w", n, key, r.size(), r.PerSec, ErrNever)
	}
	return TakeResult{v[0] == 1, time.Duration(v[1]) * time.Microsecond, int(v[2])}, nil
}
