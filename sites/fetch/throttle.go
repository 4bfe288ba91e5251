package fetch

import (
	"context"
	"sync"
	"time"
)

// maxThrottle is the longest delay that a slow site brings about.
const maxThrottle = time.Minute

// LocalThrottle makes a delay of how slowly a site answers, after Scrapy's
// AutoThrottle: it rises at once and falls slowly, and errors never lower it.
// What counts is the time beyond the shortest seen lately, so that the way
// there, be it through a slow proxy, does not. The zero value is ready.
type LocalThrottle struct {
	mu    sync.Mutex // guards the fields below
	base  time.Duration
	value time.Duration
}

// Observe implements Throttle. It does not fail.
func (t *LocalThrottle) Observe(_ context.Context, latency time.Duration, ok bool) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case t.base == 0 || latency < t.base:
		t.base = latency
	default:
		t.base += t.base / 100 // forgets a lucky answer after some hundred
	}
	target := max(latency-t.base, 0)
	next := min(max(target, (t.value+target)/2), maxThrottle)
	if !ok && next <= t.value {
		return nil
	}
	t.value = next
	return nil
}

// Delay implements Throttle.
func (t *LocalThrottle) Delay() time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.value
}
