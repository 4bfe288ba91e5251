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

// Pace is how far apart the uses of a key are: Interval and a random part of
// Jitter.
type Pace struct {
	Interval time.Duration
	Jitter   time.Duration
}

// PacerConfig sets up a Pacer.
type PacerConfig struct {
	Namespace string          // prefix of all keys. Defaults to "muster".
	Default   Pace            // of a key that PerKey does not name. Defaults to none: no distance.
	PerKey    map[string]Pace // by key
	FailOpen  bool            // allow everything while Redis is away. Defaults to false.
	Logger    *slog.Logger    // Defaults to slog.Default().
}

// Pacer keeps the uses of a key apart, in all processes together. It is safe
// for concurrent use.
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

// Configure replaces the default and the paces per key of this process, as a
// reload of its configuration does. Moments that are taken stay taken.
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

// Reserve takes the next free moment of a key and returns how long until then.
// If that is longer than patience it takes nothing, and ok is false: try again
// after the wait, and do not sleep.
func (p *Pacer) Reserve(ctx context.Context, key string, patience time.Duration) (wait time.Duration, ok bool, err error) {
	return p.ReserveApart(ctx, key, 0, patience)
}

// ReserveApart is Reserve for a key with a distance of its own, like the crawl
// delay of a host: the longer of that and its pace holds.
func (p *Pacer) ReserveApart(ctx context.Context, key string, apart, patience time.Duration) (wait time.Duration, ok bool, err error) {
	pace := p.Pace(key)
	gap := max(pace.Interval, apart, 0)
	if pace.Jitter > 0 {
		gap += rand.N(pace.Jitter + 1)
	}
	v, err := scripts["pace"].Run(ctx, p.rdb, []string{paceKey(p.cfg.Namespace, key)}, gap.Microseconds(), patience.Microseconds()).Int64Slice()
	if err != nil {
		if p.cfg.FailOpen && ctx.Err() == nil {
			p.warn.open(err)
			return 0, true, nil
		}
		return 0, false, fmt.Errorf("keep the pace of %s: %w", key, err)
	}
	return time.Duration(v[1]) * time.Microsecond, v[0] == 1, nil
}

// Wait takes the next free moment of a key and waits for it. It fails at once,
// with ErrTooLong, if ctx would end before.
func (p *Pacer) Wait(ctx context.Context, key string) (waited time.Duration, err error) {
	wait, ok, err := p.Reserve(ctx, key, patienceOf(ctx))
	if err != nil {
		return 0, err
	}
	if !ok {
		return 0, fmt.Errorf("keep the pace of %s for %v: %w", key, wait, ErrTooLong)
	}
	start := time.Now()
	err = sleep(ctx, wait)
	return time.Since(start), err
}

// NotBefore makes the next free moment of a key t, as an answer with Retry-After
// demands. Moments that are taken stay taken; if the next free moment is later,
// it stays.
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
		return fmt.Errorf("hold back %s: %w", key, err)
	}
	return nil
}
