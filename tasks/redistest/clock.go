package redistest

import (
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
	var mu sync.Mutex // guards off
	var off time.Duration
	jump = func(d time.Duration) {
		mu.Lock()
		defer mu.Unlock()
		off += d
		m.SetTime(time.Now().Add(off))
	}
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		tick := time.NewTicker(5 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-stop:
				return
			case <-tick.C:
				jump(0)
			}
		}
	}()
	tb.Cleanup(func() { close(stop); <-stopped })
	return connect(tb, "redis://"+m.Addr()+"/0"), jump
}
