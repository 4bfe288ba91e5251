package limit

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// Pace is the interval between uses of a key: Interval plus a random part of Jitter.
type Pace struct {
	Interval time.Duration
	Jitter   time.Duration
}

// PacerConfig configures a Pacer.
type PacerConfig struct {
	Namespace string          // prefix of all keys. Defaults to "muster".
	Default   Pace            // pace of keys that are not in PerKey. Defaults to no interval.
	PerKey    map[string]Pace // paces by key
	FailOpen  bool            // allow all uses while Redis is unreachable. Defaults to false.
	Logger    *slog.Logger    // Defaults to slog.Default().
}

// A Pacer enforces a minimum interval between uses of each key across all processes. It is safe for concurrent use.
type Pacer struct {
	rdb  redis.UniversalClient
	cfg  PacerConfig
	warn *warner

	mu sync.Mutex // guards cfg.Default and cfg.PerKey
}

// NewPacer returns a pacer. It does no I/O.
func NewPacer(rdb redis.UniversalClient, cfg PacerConfig) *Pacer {
	if cfg.Namespace == "" {
		cfg.Namespace = "muster"
	}
	cfg.PerKey = maps.Clone(cfg.PerKey)
	return &Pacer{rdb: rdb, cfg: cfg, warn: newWarner(cfg.Logger, "pace")}
}

// Configure replaces the default and the paces by key of this process, for a reload of the configuration. Existing
// reservations remain.
func (p *Pacer) Configure(byDefault Pace, perKey map[string]Pace) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cfg.Default, p.cfg.PerKey = byDefault, maps.Clone(perKey)
}

// Pace returns the pace of a key.
func (p *Pacer) Pace(key string) Pace {
	p.mu.Lock()
	defer p.mu.Unlock()
	if pace, ok := p.cfg.PerKey[key]; ok {
		return pace
	}
	return p.cfg.Default
}

// Reserve reserves the next free time of a key and returns the time to wait for it. If that exceeds patience it
// reserves nothing and ok is false: call it again after the wait.
func (p *Pacer) Reserve(ctx context.Context, key string, patience time.Duration) (wait time.Duration, ok bool, err error) {
	return p.ReserveInterval(ctx, key, 0, patience)
}

// ReserveInterval is like Reserve with a minimum interval, such as the crawl delay of a host. The longer one of interval
// and the pace applies.
func (p *Pacer) ReserveInterval(ctx context.Context, key string, interval, patience time.Duration) (wait time.Duration, ok bool, err error) {
	pace := p.Pace(key)
	gap := max(pace.Interval, interval, 0)
	if pace.Jitter > 0 {
		gap += rand.N(pace.Jitter + 1)
	}
	v, err := scripts["pace"].Run(ctx, p.rdb, []string{paceKey(p.cfg.Namespace, key)}, gap.Microseconds(), patience.Microseconds()).Int64Slice()
	if err != nil {
		if p.cfg.FailOpen && ctx.Err() == nil {
			p.warn.open(err)
			return 0, true, nil
		}
		return 0, false, fmt.Errorf("reserve pace of %s: %w", key, err)
	}
	return time.Duration(v[1]) * time.Microsecond, v[0] == 1, nil
}

// Wait reserves the next free time of a key and waits for it. It fails immediately with ErrTooLong if the deadline of
// ctx is earlier.
func (p *Pacer) Wait(ctx context.Context, key string) (waited time.Duration, err error) {
	wait, ok, err := p.Reserve(ctx, key, patienceOf(ctx))
	if err != nil {
		return 0, err
	}
	if !ok {
		return 0, fmt.Errorf("reserve pace of %s, wait %v: %w", key, wait, ErrTooLong)
	}
	start := time.Now()
	err = sleep(ctx, wait)
	return time.Since(start), err
}

// NotBefore sets the next free time of a key to t, as for a response with Retry-After. Existing reservations remain,
// and a later free time is unchanged.
func (p *Pacer) NotBefore(ctx context.Context, key string, t time.Time) error {
	d := time.Until(t)
	if d <= 0 {
		return nil
	}
	if err := scripts["notbefore"].Run(ctx, p.rdb, []string{paceKey(p.cfg.Namespace, key)}, d.Microseconds()).Err(); err != nil {
		if p.cfg.FailOpen && ctx.Err() == nil {
			p.warn.open(err)
			return nil
		}
		return fmt.Errorf("delay %s: %w", key, err)
	}
	return nil
}
