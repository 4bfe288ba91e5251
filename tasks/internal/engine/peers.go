package engine

import (
	"context"
	"sync"
	"time"

	"muster/tasks/tasktype"
)

// peers caches the other live workers for a worker.
type peers struct {
	*local
	fleet *Fleet

	mu    sync.Mutex // guards the fields below, and held while they are read
	asked time.Time
	live  []tasktype.Worker
}

// peersFor is the lifetime of the cache.
const peersFor = time.Second

// another reports whether another live worker takes from a queue ("" for any) and meets ok.
func (p *peers) another(ctx context.Context, queue string, ok func(*tasktype.Worker) bool) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.clock.Now().Sub(p.asked) > peersFor {
		live, err := p.fleet.Workers(ctx)
		if err != nil {
			p.log.WarnContext(ctx, "live workers cannot be listed", "error", err)
			return false
		}
		p.asked, p.live = p.clock.Now(), live
	}
	for i := range p.live {
		o := &p.live[i]
		if o.Name != p.cfg.Name && (queue == "" || o.Queues[queue] > 0) && ok(o) {
			return true
		}
	}
	return false
}
