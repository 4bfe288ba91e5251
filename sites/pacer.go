package sites

import (
	"context"
	_ "embed"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/redis/go-redis/v9"
)

//go:embed lua/turn.lua
var turnLua string

//go:embed lua/hold.lua
var holdLua string

var (
	turnCmd = redis.NewScript(turnLua)
	holdCmd = redis.NewScript(holdLua)
)

// pacer is the clock of a site, shared by all processes.
type pacer struct {
	rdb  redis.UniversalClient
	site string
}

// Take implements fetch.Pacer. The interval varies from half to one and a
// half, so that requests are no drum beat.
func (p pacer) Take(ctx context.Context, interval time.Duration) (time.Duration, error) {
	if interval > 0 {
		interval = interval/2 + rand.N(interval)
	}
	us, err := turnCmd.Run(ctx, p.rdb, []string{turnKey(p.site)}, interval.Microseconds()).Int64()
	if err != nil {
		return 0, fmt.Errorf("take a turn of %s: %w", p.site, err)
	}
	return time.Duration(us) * time.Microsecond, nil
}

// Hold implements fetch.Pacer.
func (p pacer) Hold(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return nil
	}
	if err := holdCmd.Run(ctx, p.rdb, []string{turnKey(p.site)}, d.Microseconds()).Err(); err != nil {
		return fmt.Errorf("hold the clock of %s: %w", p.site, err)
	}
	return nil
}
