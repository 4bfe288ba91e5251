package limit

import (
	"context"
	"fmt"
	"log/slog"
	"math"
	"time"

	"github.com/redis/go-redis/v9"
)

// Rate is the size and refill rate of a bucket.
type Rate struct {
	Capacity float64 // size of the bucket, in tokens
	PerSec   float64 // tokens added per second; 0 means none
}

// PerMinute returns a rate of n tokens per minute. The bucket holds up to n tokens.
func PerMinute(n float64) Rate { return Rate{Capacity: n, PerSec: n / 60} }

// BucketConfig configures a TokenBucket.
type BucketConfig struct {
	Namespace string          // prefix of all keys. Defaults to "muster".
	Default   Rate            // rate of keys that are not in PerKey
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
	return &TokenBucket{rdb: rdb, cfg: cfg, warn: newWarner(cfg.Logger, "rate")}
}

// TakeResult is the result of Take.
type TakeResult struct {
	OK   bool          // the tokens were taken
	Wait time.Duration // time until enough tokens are available; 0 if OK
	Left int           // whole tokens in the bucket after the call
}

// Take takes n tokens if they are available. It is an error if they never are.
func (b *TokenBucket) Take(ctx context.Context, key string, n float64) (TakeResult, error) {
	return b.take(ctx, key, n)
}

// Refund returns n tokens, up to the size of the bucket.
func (b *TokenBucket) Refund(ctx context.Context, key string, n float64) error {
	if n <= 0 {
		return nil
	}
	_, err := b.take(ctx, key, -n)
	return err
}

func (b *TokenBucket) take(ctx context.Context, key string, n float64) (TakeResult, error) {
	r, ok := b.cfg.PerKey[key]
	if !ok {
		r = b.cfg.Default
	}
	if math.IsNaN(n) || math.IsInf(n, 0) {
		return TakeResult{}, fmt.Errorf("take %g tokens of %s: the number of tokens must be finite", n, key)
	}
	v, err := scripts["take"].Run(ctx, b.rdb, []string{bucketKey(b.cfg.Namespace, key)},
		n, r.Capacity, r.PerSec).Int64Slice()
	if err != nil {
		if b.cfg.FailOpen && ctx.Err() == nil {
			b.warn.open(err)
			return TakeResult{OK: true, Left: int(r.Capacity)}, nil
		}
		return TakeResult{}, fmt.Errorf("take %g tokens of %s: %w", n, key, err)
	}
	if v[1] < 0 {
		return TakeResult{}, fmt.Errorf("take %g tokens of %s: the limit of %g with %g per second can never allow this", n, key, r.Capacity, r.PerSec)
	}
	return TakeResult{v[0] == 1, time.Duration(v[1]) * time.Microsecond, int(v[2])}, nil
}
