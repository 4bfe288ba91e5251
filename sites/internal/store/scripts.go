package store

import (
	"context"
	_ "embed"
	"time"

	"github.com/redis/go-redis/v9"
)

var (
	//go:embed lua/grant.lua
	grantLua string
	grantCmd = redis.NewScript(grantLua)

	//go:embed lua/throttle.lua
	throttleLua string
	throttleCmd = redis.NewScript(throttleLua)
)

// Page is a fetched page that counts against the limits of its job.
type Page struct {
	ID      string
	Records int
	Bytes   int
}

// Grant adds a page to the totals of a job and returns how many of its records
// may be kept when the job may have at most maxRecords; 0 is no limit. A second
// call with the same page adds nothing and returns the same.
func Grant(ctx context.Context, rdb redis.UniversalClient, job string, p Page, maxRecords int64) (int, error) {
	return grantCmd.Run(ctx, rdb, []string{SpentKey(job)}, p.ID, p.Records, p.Bytes, maxRecords, Keep.Milliseconds()).Int()
}

// Throttle adds the latency of an answer to what is known of a site, and returns
// the delay between requests that its answers call for, at most maxDelay. An
// answer that is not ok, that is, not a page, never lowers the delay.
func Throttle(ctx context.Context, rdb redis.UniversalClient, site string, latency time.Duration, ok bool, maxDelay time.Duration) (time.Duration, error) {
	good := 0
	if ok {
		good = 1
	}
	us, err := throttleCmd.Run(ctx, rdb, []string{ThrottleKey(site)}, latency.Microseconds(), good, maxDelay.Microseconds()).Int64()
	return time.Duration(us) * time.Microsecond, err
}
