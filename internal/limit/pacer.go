package limit

import (
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// PacerConfig configures a Pacer.
type PacerConfig struct {
	Interval time.Duration // minimum interval of all keys. Defaults to none.
	FailOpen bool          // allow all uses while Redis is unreachable. Defaults to false.
	Logger   *slog.Logger  // Defaults to slog.Default().
}

// A Pacer enforces a minimum interval between uses of each key across all processes. It is safe for concurrent use.
type Pacer struct {
	rdb      redis.UniversalClient
	failOpen bool
	interval atomic.Int64
	warn     *warner
}

// NewPacer returns a pacer. It does no I/O.
func NewPacer(rdb redis.UniversalClient, cfg PacerConfig) *Pacer {
	p := &Pacer{rdb: rdb, failOpen: cfg.FailOpen, warn: newWarner(cfg.Logger, "pace")}
	p.SetInterval(cfg.Interval)
	return p
}

// SetInterval replaces the interval of this process, for a reload of the configuration. Existing reservations remain.
func (p *Pacer) SetInterval(d time.Duration) { p.interval.Store(int64(d)) }

// Interval returns the minimum interval of all keys.
func (p *Pacer) Interval() time.Duration { return time.Duration(p.interval.Load()) }

// Reserve reserves a use of a key now, if it is free: the next one follows after interval, such as the crawl delay of a
// host, or the interval of all keys, whichever is longer. Otherwise it reserves nothing, and ok is false: call it again
// after the wait.
func (p *Pacer) Reserve(ctx context.Context, key string, interval time.Duration) (wait time.Duration, ok bool, err error) {
	gap := max(p.Interval(), interval, 0)
	v, err := scripts["pace"].Run(ctx, p.rdb, []string{paceKey(key)}, gap.Microseconds()).Int64()
	if err != nil {
		if p.failOpen && ctx.Err() == nil {
			p.warn.open(err)
			return 0, true, nil
		}
		return 0, false, fmt.Errorf("reserve pace of %s: %w", key, err)
	}
	return time.Duration(v) * time.Microsecond, v == 0, nil
}

// NotBefore sets the next free time of a key to t, as for a response with Retry-After. A later free time is unchanged.
func (p *Pacer) NotBefore(ctx context.Context, key string, t time.Time) error {
	d := time.Until(t)
	if d <= 0 {
		return nil
	}
	if err := scripts["notbefore"].Run(ctx, p.rdb, []string{paceKey(key)}, d.Microseconds()).Err(); err != nil {
		if p.failOpen && ctx.Err() == nil {
			p.warn.open(err)
			return nil
		}
		return fmt.Errorf("delay %s: %w", key, err)
	}
	return nil
}
