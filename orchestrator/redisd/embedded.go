package redisd

import (
	"context"
	"sync"
	"time"

	"github.com/alicebob/miniredis/v2"
)

// Volatile is the warning about the built-in Redis.
const Volatile = "the built-in Redis keeps its data in memory: jobs and the proxy pool are lost when Muster stops; install redis-server to keep them"

// embedded is a miniredis in this process. Its data is lost when the process exits.
type embedded struct {
	mini *miniredis.Miniredis
	stop context.CancelFunc
	done sync.WaitGroup
}

// startEmbedded starts a miniredis on addr that requires the password.
func startEmbedded(addr, password string) (*embedded, error) {
	e := &embedded{mini: miniredis.NewMiniRedis()}
	e.mini.RequireAuth(password)
	if err := e.mini.StartAddr(addr); err != nil {
		return nil, err
	}
	var running context.Context
	running, e.stop = context.WithCancel(context.Background())
	e.done.Go(func() { e.expireKeys(running) })
	return e, nil
}

// expireKeys advances the clock of miniredis, which is manual, until ctx is done.
func (e *embedded) expireKeys(ctx context.Context) {
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	last := time.Now()
	for {
		select {
		case <-tick.C:
			now := time.Now()
			e.mini.FastForward(now.Sub(last))
			last = now
		case <-ctx.Done():
			return
		}
	}
}

func (e *embedded) Stop() {
	e.stop()
	e.done.Wait()
	e.mini.Close()
}
