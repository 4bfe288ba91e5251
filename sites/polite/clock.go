package polite

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"muster/tasks/limit"
)

// Clock hands out the turns of keys, such as hosts and sites. It may be used by many goroutines at once.
type Clock interface {
	// Take takes a turn of a key if it is time for one, the interval after the last, and returns 0; otherwise it takes
	// nothing and returns how long to wait. It does not block.
	Take(ctx context.Context, key string, interval time.Duration) (time.Duration, error)
	// Hold gives out no turn of a key for a while.
	Hold(ctx context.Context, key string, d time.Duration) error
}

// SharedClock is the clock of all processes that have the same Redis. Set Pacer; the zero value of the rest is ready.
type SharedClock struct {
	Pacer *limit.Pacer
	Vary  bool // takes intervals from half to one and a half of what is asked for, so that requests are no drum beat

	mu   sync.Mutex           // guards free
	free map[string]time.Time // by key: until when one without an interval need not be looked at
}

// freeFor is how late a process may learn that a key without an interval is to be left alone, when another process was
// told so. It saves a round trip for each request.
const freeFor = 100 * time.Millisecond

// freeKeys bounds the keys that a clock remembers.
const freeKeys = 10_000

// Take implements Clock.
func (c *SharedClock) Take(ctx context.Context, key string, interval time.Duration) (time.Duration, error) {
	quick := interval <= 0 && c.Pacer.Pace(key) == limit.Pace{}
	if quick && c.isFree(key) {
		return 0, nil
	}
	if c.Vary && interval > 0 {
		interval = interval/2 + rand.N(interval)
	}
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
	return 0, nil
}

// Hold implements Clock.
func (c *SharedClock) Hold(ctx context.Context, key string, d time.Duration) error {
	c.setFree(key, time.Time{})
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

// LocalClock is the clock of one process. The zero value is ready for use.
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
	c.set(key, now.Add(interval))
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

// set sets when the next turn of a key is. The caller holds mu.
func (c *LocalClock) set(key string, t time.Time) {
	if c.next == nil {
		c.next = map[string]time.Time{}
	}
	c.next[key] = t
}
