package polite

import (
	"context"
	"maps"
	"sync"
	"time"

	"muster/internal/limit"
)

// A Clock spaces the requests of a key, such as a host or a site. It is safe for concurrent use.
type Clock interface {
	// Take reserves a turn of a key and returns 0 if the interval since the last turn has passed. Otherwise it reserves nothing
	// and returns the remaining wait. It does not block.
	Take(ctx context.Context, key string, interval time.Duration) (time.Duration, error)
	// Hold blocks all turns of a key for d.
	Hold(ctx context.Context, key string, d time.Duration) error
}

// SharedClock is the clock of all processes with the same Redis. Pacer is required; the other fields are ready at their zero
// values.
type SharedClock struct {
	Pacer *limit.Pacer

	held LocalClock // holds of this process, effective before Redis stores them
	free LocalClock // holds keys without an interval while their last read is valid
}

// freeFor is the delay with which a process may notice another process's hold on a key without an interval. It saves most Redis
// calls of fast sites and is shorter than most response times.
const freeFor = 10 * time.Millisecond

// clockKeys is the number of keys from which a clock forgets those whose turn has come.
const clockKeys = 10_000

// Take implements Clock.
func (c *SharedClock) Take(ctx context.Context, key string, interval time.Duration) (time.Duration, error) {
	if wait, _ := c.held.Take(ctx, key, 0); wait > 0 { // first, because it takes no turn
		return wait, nil
	}
	quick := interval <= 0 && c.Pacer.Interval() <= 0
	if valid, _ := c.free.Take(ctx, key, 0); !quick || valid <= 0 {
		wait, ok, err := c.Pacer.Reserve(ctx, key, interval)
		if err != nil {
			return 0, err
		}
		if !ok {
			return max(wait, time.Microsecond), nil
		}
		if quick {
			_ = c.free.Hold(ctx, key, freeFor)
		}
	}
	return c.held.Take(ctx, key, 0) // a hold may have begun during the call
}

// Hold implements Clock.
func (c *SharedClock) Hold(ctx context.Context, key string, d time.Duration) error {
	_ = c.held.Hold(ctx, key, d)
	return c.Pacer.NotBefore(ctx, key, time.Now().Add(d))
}

// LocalClock is a clock of one process. The zero value is ready to use.
type LocalClock struct {
	mu   sync.Mutex // guards next
	next map[string]time.Time
}

// Take implements Clock. It never fails.
func (c *LocalClock) Take(_ context.Context, key string, interval time.Duration) (time.Duration, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	if wait := c.next[key].Sub(now); wait > 0 {
		return wait, nil
	}
	if interval > 0 {
		c.set(key, now.Add(interval))
	} else {
		delete(c.next, key)
	}
	return 0, nil
}

// Hold implements Clock. It never fails.
func (c *LocalClock) Hold(_ context.Context, key string, d time.Duration) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if t := time.Now().Add(d); t.After(c.next[key]) {
		c.set(key, t)
	}
	return nil
}

// set sets the time of the next turn of a key. The caller holds mu.
func (c *LocalClock) set(key string, t time.Time) {
	if c.next == nil {
		c.next = map[string]time.Time{}
	}
	if now := time.Now(); len(c.next) >= clockKeys {
		maps.DeleteFunc(c.next, func(_ string, t time.Time) bool { return t.Before(now) })
	}
	c.next[key] = t
}
