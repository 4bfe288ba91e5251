package polite

import (
	"context"
	"sync"
	"time"

	"muster/tasks/limit"
)

// Clock gives turns to the requests of keys, such as hosts and sites. It is safe for concurrent use.
type Clock interface {
	// Take takes a turn of a key if the interval since the last one is over, and returns 0; otherwise it takes none
	// and returns how long to wait. It does not wait itself.
	Take(ctx context.Context, key string, interval time.Duration) (time.Duration, error)
	// Hold gives no turn of a key for d.
	Hold(ctx context.Context, key string, d time.Duration) error
}

// SharedClock is the clock of all processes that have the same Redis. Set Pacer; the zero value of the rest is ready.
type SharedClock struct {
	Pacer *limit.Pacer

	held LocalClock // the holds of this process, which apply before Redis has them

	mu   sync.Mutex           // guards free
	free map[string]time.Time // by key without an interval: until when Redis need not be read
}

// freeFor is how late a process may see that another one holds a key without an interval. It saves most round trips of
// fast sites, and is shorter than the way of most responses.
const freeFor = 10 * time.Millisecond

// freeKeys bounds the keys that a clock remembers.
const freeKeys = 10_000

// Take implements Clock.
func (c *SharedClock) Take(ctx context.Context, key string, interval time.Duration) (time.Duration, error) {
	quick := interval <= 0 && c.Pacer.Pace(key) == limit.Pace{}
	if !quick || !c.isFree(key) {
		wait, ok, err := c.Pacer.ReserveApart(ctx, key, interval, 0)
		if err != nil {
			return 0, err
		}
		if !ok {
			return max(wait, time.Microsecond), nil
		}
		if quick {
			c.setFree(key, time.Now().Add(freeFor))
		}
	}
	return c.held.Take(ctx, key, 0)
}

// Hold implements Clock.
func (c *SharedClock) Hold(ctx context.Context, key string, d time.Duration) error {
	_ = c.held.Hold(ctx, key, d)
	return c.Pacer.NotBefore(ctx, key, time.Now().Add(d))
}

func (c *SharedClock) isFree(key string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return time.Now().Before(c.free[key])
}

func (c *SharedClock) setFree(key string, until time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.free == nil || len(c.free) >= freeKeys {
		c.free = map[string]time.Time{}
	}
	c.free[key] = until
}

// LocalClock is a clock of one process. The zero value is ready for use.
type LocalClock struct {
	mu   sync.Mutex // guards next
	next map[string]time.Time
}

// Take implements Clock. It does not fail.
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

// Hold implements Clock. It does not fail.
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
	c.next[key] = t
}
