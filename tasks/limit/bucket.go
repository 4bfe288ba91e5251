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

// Rate is what a bucket holds and how it fills.
type Rate struct {
	Capacity float64 // tokens
	Burst    float64 // further tokens that it can hold
	PerSec   float64 // tokens added a second; 0: never any
}

// PerMinute is the rate of n in a minute, all of which may come at once.
func PerMinute(n float64) Rate { return Rate{Capacity: n, PerSec: n / 60} }

func (r Rate) most() float64 { return r.Capacity + r.Burst }

// BucketConfig sets up a TokenBucket.
type BucketConfig struct {
	Namespace string          // prefix of all keys. Defaults to "muster".
	Default   Rate            // of a key that PerKey does not name. Defaults to 5, burst 2, 1 a second.
	PerKey    map[string]Rate // by key
	FailOpen  bool            // allow everything while Redis is away. Defaults to false.
	Logger    *slog.Logger    // Defaults to slog.Default().
}

// TokenBucket bounds a rate per key, in all processes together. A bucket
// starts full. It is safe for concurrent use.
type TokenBucket struct {
	rdb  redis.UniversalClient
	cfg  BucketConfig
	warn *warner
}

// NewTokenBucket returns a bucket for each key. It does no I/O.
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

// Try takes n tokens if they are available. If not it takes none and returns how
// long until they would be; ErrNever if they never will be.
func (b *TokenBucket) Try(ctx context.Context, key string, n float64) (ok bool, wait time.Duration, err error) {
	t, err := b.take(ctx, key, n, 0)
	return t.OK, t.Wait, err
}

// Taken is the result of Take.
type Taken struct {
	OK   bool          // the tokens were taken
	Wait time.Duration // until the bucket holds enough tokens; 0 if OK
	Left int           // whole tokens in the bucket after the call
}

// Take is Try that also returns how many tokens are left. With n = 0 it takes none
// and only returns the state of the bucket.
func (b *TokenBucket) Take(ctx context.Context, key string, n float64) (Taken, error) {
	return b.take(ctx, key, n, 0)
}

// Reserve takes n tokens, now or ahead of time, and returns how long the caller
// must wait before it uses them. If that is longer than patience it takes none
// and returns ErrTooLong, or ErrNever, and the time.
func (b *TokenBucket) Reserve(ctx context.Context, key string, n float64, patience time.Duration) (wait time.Duration, err error) {
	t, err := b.take(ctx, key, n, patience)
	if err == nil && !t.OK {
		err = fmt.Errorf("%v for %g tokens of %s: %w", t.Wait, n, key, ErrTooLong)
	}
	return t.Wait, err
}

// Wait takes n tokens and waits until they are available, and returns how long
// that was. It fails at once if ctx would end before, and returns the tokens if
// it ends meanwhile.
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

// patienceOf is how long a wait may be that ends before ctx does.
func patienceOf(ctx context.Context) time.Duration {
	end, ok := ctx.Deadline()
	if !ok {
		return math.MaxInt64
	}
	return max(0, time.Until(end))
}

// Refund returns n tokens, as far as the bucket can hold them.
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
			return fmt.Errorf("reset the rate of %s: %w", k, err)
		}
	}
	return nil
}

func (b *TokenBucket) take(ctx context.Context, key string, n float64, patience time.Duration) (Taken, error) {
	r := b.Rate(key)
	if math.IsNaN(n) || math.IsInf(n, 0) {
		return Taken{}, fmt.Errorf("take %g tokens of %s: the number of tokens must be finite", n, key)
	}
	v, err := scripts["take"].Run(ctx, b.rdb, []string{bucketKey(b.cfg.Namespace, key)},
		n, r.most(), math.Max(r.PerSec, 0), patience.Microseconds()).Int64Slice()
	if err != nil {
		if b.cfg.FailOpen && ctx.Err() == nil {
			b.warn.open(err)
			return Taken{OK: true, Left: int(r.most())}, nil
		}
		return Taken{}, fmt.Errorf("take %g tokens of %s: %w", n, key, err)
	}
	if v[1] < 0 {
		return Taken{}, fmt.Errorf("take %g tokens of %s, which holds %g and gains %g a second: %w", n, key, r.most(), r.PerSec, ErrNever)
	}
	return Taken{v[0] == 1, time.Duration(v[1]) * time.Microsecond, int(v[2])}, nil
}
