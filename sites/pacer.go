package sites

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"muster/sites/internal/store"
	"muster/tasks/limit"
)

// pacer is the clock of a site, shared by all processes.
type pacer struct {
	limit *limit.Pacer
	site  string

	mu   sync.Mutex // guards free
	free time.Time  // until when the clock of a site without a delay need not be looked at
}

// freeFor is how late a process may learn that a site without a delay wants
// to be left alone, when another was told so. It saves a round trip a page.
const freeFor = 100 * time.Millisecond

// Take implements fetch.Pacer. The interval varies from half to one and a
// half, so that requests are no drum beat.
func (p *pacer) Take(ctx context.Context, interval time.Duration) (time.Duration, error) {
	if interval <= 0 {
		p.mu.Lock()
		free := time.Now().Before(p.free)
		p.mu.Unlock()
		if free {
			return 0, nil
		}
	} else {
		interval = interval/2 + rand.N(interval)
	}
	wait, ok, err := p.limit.ReserveApart(ctx, p.site, interval, 0)
	if err != nil {
		return 0, err
	}
	if ok {
		p.mu.Lock()
		p.free = time.Now().Add(freeFor)
		p.mu.Unlock()
		return 0, nil
	}
	return max(wait, time.Microsecond), nil
}

// Hold implements fetch.Pacer.
func (p *pacer) Hold(ctx context.Context, d time.Duration) error {
	p.mu.Lock()
	p.free = time.Time{}
	p.mu.Unlock()
	return p.limit.NotBefore(ctx, p.site, time.Now().Add(d))
}

// throttle is the delay that a site's answers ask for, shared by all
// processes: each learns what the others have seen when it has seen an answer
// itself.
type throttle struct {
	rdb  redis.UniversalClient
	site string

	mu    sync.Mutex // guards value
	value time.Duration
}

// Observe implements fetch.Throttle.
func (t *throttle) Observe(ctx context.Context, latency time.Duration, ok bool) error {
	delay, err := store.Throttle(ctx, t.rdb, t.site, latency, ok, maxThrottle)
	if err != nil {
		return fmt.Errorf("share the pace of %s: %w", t.site, err)
	}
	t.mu.Lock()
	t.value = delay
	t.mu.Unlock()
	return nil
}

// Delay implements fetch.Throttle.
func (t *throttle) Delay() time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.value
}

// maxThrottle is the longest delay that a slow site brings about.
const maxThrottle = time.Minute
