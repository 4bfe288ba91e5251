package workqueue

import (
	"context"
	"errors"
	"time"

	"github.com/redis/go-redis/v9"
)

// deadAfter is how many heartbeats a pool may miss before the others treat it
// as dead.
const deadAfter = 3

// lookEvery is how often a pool checks that the others are alive.
const lookEvery = 5 * time.Second

// presence sends the heartbeats of this pool, and ends the leases of dead pools: pools whose connections are closed,
// as after the kill of a process, and pools without a heartbeat for several intervals. So the items of a dead pool
// are delayed for seconds, not until their leases expire.
type presence struct {
	p     *Pool
	every time.Duration  // between two looks
	gone  map[string]int // looks in a row that found no connection, by pool
}

func newPresence(p *Pool) *presence {
	return &presence{p: p, every: min(lookEvery, p.cfg.Heartbeat)}
}

// run closes announced once the others know of this pool, or never will.
func (s *presence) run(ctx context.Context, announced chan<- struct{}) {
	tick := time.NewTicker(s.every)
	defer tick.Stop()
	for {
		err := s.look(ctx)
		if announced != nil && (err == nil || errors.Is(err, ErrNewer)) { // a lease returns ErrNewer too
			close(announced)
			announced = nil
		}
		var soon <-chan time.Time
		if announced != nil {
			soon = time.After(min(s.every, time.Second))
		}
		select {
		case <-ctx.Done():
			s.leave(context.WithoutCancel(ctx))
			return
		case <-tick.C:
		case <-soon:
		}
	}
}

// leave removes the pool from the list of pools. If that fails the others
// remove it soon.
func (s *presence) leave(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	_ = s.p.q.rdb.ZRem(ctx, s.p.q.keys.pools, s.p.cfg.Name).Err()
}

// look announces this pool and checks the others.
func (s *presence) look(ctx context.Context) error {
	q, log := s.p.q, s.p.cfg.Logger
	ended, others, err := s.beat(ctx)
	before := s.gone
	s.gone = map[string]int{}
	if err != nil {
		if ctx.Err() == nil {
			log.WarnContext(ctx, "heartbeat of the pool failed; retrying", "queue", q.name, "err", err)
		}
		return err
	}
	for _, name := range s.unconnectedPools(ctx, others) {
		// Twice, because a pool may be connecting again.
		if s.gone[name] = before[name] + 1; s.gone[name] < 2 {
			continue
		}
		n, err := q.ExpireWorker(ctx, name)
		if err != nil {
			continue // the next look finds it again
		}
		delete(s.gone, name)
		ended += n
	}
	if ended > 0 {
		log.WarnContext(ctx, "a pool has died; its items run again", "queue", q.name, "items", ended)
	}
	return nil
}

// beat stores that this pool is alive for a while, ends the leases of the pools
// that have not done so for too long, and returns the names of the others.
func (s *presence) beat(ctx context.Context) (ended int, others []string, err error) {
	ttl := deadAfter * max(s.every, s.p.cfg.Heartbeat)
	v, err := s.p.q.run(ctx, "send a heartbeat", "beat",
		s.p.cfg.Name, ttl.Milliseconds(), s.p.q.cfg.MaxAttempts, workerDied)
	if err != nil {
		return 0, nil, err
	}
	list, _ := v.([]any)
	for _, name := range list[1:] {
		others = append(others, toString(name))
	}
	return int(toInt(list[0])), others, nil
}

// unconnectedPools returns the pools that have no subscribed connection. It returns none on a Redis that does not provide
// this: a cluster, or one where pools may not subscribe.
func (s *presence) unconnectedPools(ctx context.Context, others []string) []string {
	rdb, ok := s.p.q.rdb.(*redis.Client)
	if !ok || len(others) == 0 {
		return nil
	}
	keys := s.p.q.keys
	own := keys.alive(s.p.cfg.Name)
	channels := []string{own}
	for _, name := range others {
		channels = append(channels, keys.alive(name))
	}
	subscribers, err := rdb.PubSubNumSub(ctx, channels...).Result()
	if err != nil || subscribers[own] == 0 {
		return nil
	}
	var out []string
	for i, name := range others {
		if subscribers[channels[i+1]] == 0 {
			out = append(out, name)
		}
	}
	return out
}
