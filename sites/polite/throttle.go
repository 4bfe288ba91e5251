package polite

import (
	"context"
	_ "embed"
	"fmt"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// Throttle makes a delay of how slowly a site answers, after Scrapy's AutoThrottle: it rises at once and falls slowly,
// and errors never lower it. What counts is the time beyond the shortest seen lately, so that the way there, be it
// through a slow proxy, does not. It may be used by many goroutines at once.
type Throttle interface {
	// Observe takes in the time from a request to the head of its answer, and whether that was a page.
	Observe(ctx context.Context, latency time.Duration, ok bool) error
	// Delay is the delay that the answers ask for. It does no I/O.
	Delay() time.Duration
}

// maxThrottle is the longest delay that a slow site brings about.
const maxThrottle = time.Minute

//go:embed lua/throttle.lua
var throttleLua string

var throttleCmd = redis.NewScript(throttleLua)

// SharedThrottle is the throttle of a site for all processes: each learns what the others have seen when it has seen an
// answer itself.
type SharedThrottle struct {
	rdb  redis.UniversalClient
	site string

	mu    sync.Mutex // guards value
	value time.Duration
}

// NewSharedThrottle returns the throttle of a site. It does no I/O.
func NewSharedThrottle(rdb redis.UniversalClient, site string) *SharedThrottle {
	return &SharedThrottle{rdb: rdb, site: site}
}

// Observe implements Throttle.
func (t *SharedThrottle) Observe(ctx context.Context, latency time.Duration, ok bool) error {
	good := 0
	if ok {
		good = 1
	}
	us, err := throttleCmd.Run(ctx, t.rdb, []string{throttleKey(t.site)}, latency.Microseconds(), good, maxThrottle.Microseconds()).Int64()
	if err != nil {
		return fmt.Errorf("share the pace of %s: %w", t.site, err)
	}
	t.mu.Lock()
	t.value = time.Duration(us) * time.Microsecond
	t.mu.Unlock()
	return nil
}

// Delay implements Throttle.
func (t *SharedThrottle) Delay() time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.value
}

// LocalThrottle is a throttle of one process. The zero value is ready for use.
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
