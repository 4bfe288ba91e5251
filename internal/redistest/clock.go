package redistest

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
)

// Clock is like Mini with a settable clock: jump advances it by d. Keys do not expire.
func Clock(tb testing.TB) (rdb redis.UniversalClient, jump func(d time.Duration)) {
	tb.Helper()
	m := miniredis.NewMiniRedis()
	if err := m.Start(); err != nil {
		tb.Fatalf("start miniredis: %v", err)
	}
	tb.Cleanup(m.Close)
	c := &clock{set: m.SetTime}
	rdb = connect(tb, "redis://"+m.Addr()+"/0")
	rdb.AddHook(Before(func(context.Context, redis.Cmder) { c.jump(0) }))
	return rdb, c.jump
}

// clock sets the time of a miniredis.
type clock struct {
	set func(time.Time)

	mu  sync.Mutex    // guards off, and keeps the calls of set in their order
	off time.Duration // from the clock of the machine
}

func (c *clock) jump(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.off += d
	c.set(time.Now().Add(c.off))
}
