package fetch

import (
	"sync"
	"time"
)

// maxThrottle is the longest delay that a slow site brings about.
const maxThrottle = time.Minute

// throttle makes a delay of how slowly a site answers, after Scrapy's
// AutoThrottle: it rises at once and falls slowly, and errors never lower it.
// What counts is the time beyond the shortest seen lately, so that the way
// there, be it through a slow proxy, does not. The zero value is ready.
type throttle struct {
	mu    sync.Mutex // guards the fields below
	base  time.Duration
	value time.Duration
}

// observe takes in the time from a request to the head of its answer.
func (t *throttle) observe(latency time.Duration, ok bool) {
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
		return
	}
	t.value = next
}

// delay is the delay that the site's answers ask for.
func (t *throttle) delay() time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.value
}
