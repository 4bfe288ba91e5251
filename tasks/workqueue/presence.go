package workqueue

import (
	"context"
	"errors"
	"time"

	"github.com/redis/go-redis/v9"
)

// deadAfter is how many heartbeats a pool may miss before the others take it
// for dead.
const deadAfter = 3

// lookEvery is how often a pool looks whether the others are alive.
const lookEvery = 5 * time.Second

// presence tells the other pools of the queue that this one is alive, and ends
// the leases of those that are not: of one whose connections have ended, as
// they do with a killed process, and of one that has said nothing for some
// heartbeats. So the items of a dead pool wait for seconds, not for the end of
// their leases. It closes said once the others can know of this one, or never
// will.
func (p *Pool) presence(ctx context.Context, said chan<- struct{}) {
	every := min(lookEvery, p.cfg.Heartbeat)
	tick := time.NewTicker(every)
	defer tick.Stop()
	gone := map[string]int{} // looks in a row that found no connection, by pool
	for {
		var err error
		gone, err = p.look(ctx, every, gone)
		if said != nil && (err == nil || errors.Is(err, ErrNewer)) { // who leases is told the same
			close(said)
			said = nil
		}
		var soon <-chan time.Time
		if said != nil {
			soon = time.After(min(every, time.Second))
		}
		select {
		case <-ctx.Done():
			bye, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
			defer cancel()
			// If this fails the others see it soon.
			_ = p.q.leave(bye, p.cfg.Name)
			return
		case <-tick.C:
		case <-soon:
		}
	}
}

// look is one look at the other pools.
func (p *Pool) look(ctx context.Context, every time.Duration, before map[string]int) (map[string]int, error) {
	ttl := deadAfter * max(every, p.cfg.Heartbeat)
	ended, others, err := p.q.beat(ctx, p.cfg.Name, ttl)
	if err != nil {
		if ctx.Err() == nil {
			p.cfg.Logger.Warn("cannot say that this pool is alive; trying again", "queue", p.q.name, "err", err)
		}
		return nil, err
	}
	gone := map[string]int{}
	for _, name := range p.unheard(ctx, others) {
		// Twice, because a connection may be on its way back.
		if gone[name] = before[name] + 1; gone[name] < 2 {
			continue
		}
		n, err := p.q.ExpireWorker(ctx, name)
		if err != nil {
			continue // the next look finds it again
		}
		delete(gone, name)
		ended += n
	}
	if ended > 0 {
		p.cfg.Logger.Warn("a pool has died; its items run again", "queue", p.q.name, "items", ended)
	}
	return gone, nil
}

// unheard returns those pools that no connection listens for. It knows none on
// a Redis that cannot tell: a cluster, or one that lets nobody subscribe.
func (p *Pool) unheard(ctx context.Context, others []string) []string {
	rdb, ok := p.q.rdb.(*redis.Client)
	if !ok || len(others) == 0 {
		return nil
	}
	own := p.q.keys.alive(p.cfg.Name)
	channels := []string{own}
	for _, name := range others {
		channels = append(channels, p.q.keys.alive(name))
	}
	listeners, err := rdb.PubSubNumSub(ctx, channels...).Result()
	if err != nil || listeners[own] == 0 {
		return nil
	}
	var out []string
	for i, name := range others {
		if listeners[channels[i+1]] == 0 {
			out = append(out, name)
		}
	}
	return out
}
