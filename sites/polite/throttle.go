package polite

import (
	"context"
	_ "embed"
	"fmt"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"muster/internal/luascript"
)

// maxThrottle is the longest delay of a slow site.
const maxThrottle = time.Minute

//go:embed lua/throttle.lua
var throttleLua string

var throttleCmd = redis.NewScript(throttleLua)

// Throttle derives the delay between requests from the response times of a site, for all processes. Like Scrapy's
// AutoThrottle it rises at once and falls slowly, and errors never lower it. Only the time beyond the shortest recent
// one is used, to exclude the time that a proxy takes. A process reads the shared delay when it observes a response.
// A Throttle is safe for concurrent use.
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

// Observe records the time from a request to the head of its response; ok says whether that was a page.
func (t *Throttle) Observe(ctx context.Context, latency time.Duration, ok bool) error {
	good := 0
	if ok {
		good = 1
	}
	us, err := throttleCmd.Run(ctx, t.rdb, []string{throttleKey(t.site)}, latency.Microseconds(), good, maxThrottle.Microseconds()).Int64()
	if err != nil {
		return fmt.Errorf("store the response time of %s: %w", t.site, luascript.WrongType(err, throttleKey(t.site)))
	}
	t.mu.Lock()
	t.value = time.Duration(us) * time.Microsecond
	t.mu.Unlock()
	return nil
}

// Delay returns the current delay. It does no I/O.
func (t *Throttle) Delay() time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.value
}
