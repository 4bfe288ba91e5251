package webui

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"time"
)

// maxCached is the default of [Cache.Max].
const maxCached = 200

// errInternal replaces a panic. Its text is shown to readers.
var errInternal = errors.New("internal server error; see the server log")

// Cache keeps values for some seconds, and reads each once for all concurrent callers. The zero value is an empty cache. It is
// safe for concurrent use and starts no goroutines.
type Cache[V any] struct {
	// Max is the maximum number of values. Further values are read for each caller. Default: 200.
	Max int

	mu      sync.Mutex // guards entries and until of its values
	entries map[string]*entry[V]
}

// entry is a value that is being read or has been read.
type entry[V any] struct {
	began time.Time
	used  bool          // by Get
	done  chan struct{} // closed after the read
	until time.Time     // zero during the read
	value V
	err   error
}

// Get returns the value of a key. If there is none, it calls read, which also returns how long the value is kept. Errors are not
// kept. The context of read is not canceled with ctx, because other callers may wait for the value.
func (c *Cache[V]) Get(ctx context.Context, key string, read func(context.Context) (V, time.Duration, error)) (V, error) {
	c.mu.Lock()
	e, now := c.entries[key], time.Now()
	if e != nil && (e.until.IsZero() || now.Before(e.until)) {
		e.used = true
		c.mu.Unlock()
		select {
		case <-e.done:
			return e.value, e.err
		case <-ctx.Done():
			var none V
			return none, ctx.Err()
		}
	}
	e = &entry[V]{began: now, used: true, done: make(chan struct{}), err: errInternal} // for other callers, if read panics
	c.add(key, e, now)
	c.mu.Unlock()
	keep := time.Duration(0)
	defer func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		e.until = time.Now().Add(keep)
		if e.err != nil && c.entries[key] == e {
			delete(c.entries, key)
		}
		close(e.done)
	}()
	e.value, keep, e.err = read(context.WithoutCancel(ctx))
	return e.value, e.err
}

// Put adds a value whose read began at a time, in place of values whose read began earlier.
func (c *Cache[V]) Put(key string, value V, began time.Time, keep time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if old := c.entries[key]; old != nil && old.began.After(began) {
		return
	}
	now := time.Now()
	e := &entry[V]{began: began, done: make(chan struct{}), until: now.Add(keep), value: value}
	close(e.done)
	delete(c.entries, key) // also if the cache is full
	c.add(key, e, now)
}

// add adds an entry unless the cache is full, and removes expired entries. The caller holds the lock.
func (c *Cache[V]) add(key string, e *entry[V], now time.Time) {
	if c.entries == nil {
		c.entries = map[string]*entry[V]{}
	}
	for k, old := range c.entries {
		if !old.until.IsZero() && !now.Before(old.until) {
			delete(c.entries, k)
		}
	}
	if len(c.entries) < cmp.Or(c.Max, maxCached) {
		c.entries[key] = e
	}
}

// Used returns the number of values that Get has returned, including expired ones.
func (c *Cache[V]) Used() (n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, e := range c.entries {
		if e.used {
			n++
		}
	}
	return n
}
