package polite

import (
	"context"
	_ "embed"
	"fmt"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// maxThrottle is the longest delay that a slow site brings about.
const maxThrottle = time.Minute

//go:embed lua/throttle.lua
var throttleLua string

var throttleCmd = redis.NewScript(throttleLua)

// Throttle makes a delay of how slowly a site answers, for all processes. After Scrapy's AutoThrottle it rises at once and
// falls slowly, and errors never lower it. What counts is the time beyond the shortest seen lately, so that the time that
// a proxy takes does not. A process learns what the others have seen when it has seen an answer itself. A Throttle may be
// used by many goroutines at once.
type Throttle struct {
	rdb  redis.UniversalClient
	site string

	mu    sync.Mutex // guards value
	value time.Duration
}

// NewThrottle returns the throttle of a site. It does no I/O.
func NewThrottle(rdb redis.UniversalClient, site string) *Throttle {
	return &Throttle{rdb: rdb, site: site}
}

// Observe takes in the time from a request to the head of its answer, and whether that was a page.
func (t *Throttle) Observe(ctx context.Context, latency time.Duration, ok bool) error {
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

// Delay returns the delay that the answers ask for. It does no I/O.
func (t *Throttle) Delay() time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.value
}
