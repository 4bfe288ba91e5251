package polite

import (
	"context"
	_ "embed"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	maxThrottle = time.Minute            // maximum delay for a slow site or after 429
	minLimited  = 100 * time.Millisecond // first delay after 429 for a site without an interval
	limitedLook = time.Second            // maximum delay until a process notices another process's 429
)

//go:embed lua/throttle.lua
var throttleLua string

var throttleCmd = redis.NewScript(throttleLua)

// Throttle derives the delay between requests from the responses of a site, for all processes.
//
// After a 429 the delay at least doubles, and each fetched page reduces it by one percent. With auto it also depends on response
// times: like Scrapy's AutoThrottle it rises immediately and falls slowly, and errors never lower it. To exclude the time in
// proxies, only the time above the shortest recent response time counts. A process reads the shared delay when it observes a
// response. A Throttle is safe for concurrent use.
type Throttle struct {
	rdb  redis.UniversalClient
	site string
	auto bool

	value  atomic.Int64 // a time.Duration
	looked atomic.Int64 // unix nanoseconds
}

// NewThrottle returns the throttle of a site. It does no I/O.
func NewThrottle(rdb redis.UniversalClient, site string, auto bool) *Throttle {
	return &Throttle{rdb: rdb, site: site, auto: auto}
}

// Observe records the time between a request and the header of its response. ok means that the response is a page. Without auto
// and without a delay, Observe reads Redis once a second.
func (t *Throttle) Observe(ctx context.Context, latency time.Duration, ok bool) error {
	if !t.auto {
		latency = 0
		if t.value.Load() == 0 && time.Since(time.Unix(0, t.looked.Load())) < limitedLook {
			return nil
		}
	}
	page := 0
	if ok {
		page = 1
	}
	return t.update(ctx, latency.Microseconds(), page, 0, 0)
}

// Limited records a 429 at an interval between requests and doubles it; without an interval the delay becomes minLimited. It
// ignores further 429s for one second or for after, the time without new requests, whichever is longer.
func (t *Throttle) Limited(ctx context.Context, interval, after time.Duration) error {
	if interval == 0 {
		interval = minLimited / 2
	}
	return t.update(ctx, 0, 0, interval.Microseconds(), max(after, time.Second).Microseconds())
}

func (t *Throttle) update(ctx context.Context, latency int64, page int, interval, after int64) error {
	us, err := throttleCmd.Run(ctx, t.rdb, []string{throttleKey(t.site)}, latency, page, maxThrottle.Microseconds(), interval, after).Int64()
	if err != nil {
		return fmt.Errorf("store the pace of %s: %w", t.site, err)
	}
	t.value.Store(int64(time.Duration(us) * time.Microsecond))
	t.looked.Store(time.Now().UnixNano())
	return nil
}

// Delay returns the current delay. It does no I/O.
func (t *Throttle) Delay() time.Duration { return time.Duration(t.value.Load()) }
