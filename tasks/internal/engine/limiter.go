package engine

import (
	"context"
	"sync"
	"time"

	"muster/tasks/internal/store"
)

// limiter enforces the limits of the tasks that a worker runs.
type limiter struct {
	*local
	timer func(time.Duration) // makes the worker look at the agenda

	mu   sync.Mutex // guards held
	held map[store.Place]bool
}

// limitWait is how long a node waits for a limit before a worker asks again: a failover in one slot of a Cluster can lose the state of
// the limit.
const limitWait = 5 * time.Minute

// acquire takes the places that an attempt needs. It returns the result that lets the node wait for one, or nil if the attempt has
// all of them. If it fails, it can be repeated.
func (l *limiter) acquire(ctx context.Context, r *Run) (*result, error) {
	for i := r.acquired; i < len(r.limits); i++ {
		p, err := l.store.Limits.NewPlace(ctx, &r.limits[i], r.fl.Flow, r.Info.Node, r.owner)
		if err != nil {
			return nil, err
		}
		passed, err := l.passed(l.store.Limits.Acquire(ctx, &p))
		if passed.Has {
			r.acquired++
			r.places = append(r.places, p)
		}
		if passed.Has && !p.Rate() {
			l.mu.Lock()
			l.held[p] = true
			l.mu.Unlock()
		}
		if err != nil {
			return nil, err
		}
		if !passed.Has {
			res := r.waits(store.AgainLimited, limitWait)
			res.place = &p
			return &res, nil
		}
	}
	return nil, nil
}

// passed makes the worker look at the agenda when a reply says so.
func (l *limiter) passed(r store.Passed, err error) (store.Passed, error) {
	if err == nil && r.Timer >= 0 {
		l.timer(r.Timer)
	}
	return r, err
}

// release returns the places of an attempt: those of rates only if it did not start.
func (l *limiter) release(ctx context.Context, r *Run) {
	for i := range r.places {
		p := &r.places[i]
		if p.Rate() && r.started {
			continue
		}
		l.mu.Lock()
		delete(l.held, *p)
		l.mu.Unlock()
		_ = l.insist(func() error { // if the worker is killed, the place expires
			_, err := l.passed(l.store.Limits.Release(within(ctx), p))
			return err
		})
	}
}

// parked makes those of the delayed nodes ready for which places were reserved before they were delayed.
func (l *limiter) parked(ctx context.Context, done []result) {
	for i := range done {
		if r := &done[i]; r.place != nil {
			_ = l.insist(func() error { return l.store.Limits.Recheck(within(ctx), r.place) })
		}
	}
}

// expire handles an entry of the agenda for a limit.
func (l *limiter) expire(ctx context.Context, en store.Entry) error {
	_, err := l.passed(l.store.Limits.Expire(ctx, en.Flow.Shard(), en.Node))
	return err
}

// renew renews the places of running attempts.
func (l *limiter) renew(ctx context.Context) error {
	l.mu.Lock()
	var places []store.Place
	for p := range l.held {
		places = append(places, p)
	}
	l.mu.Unlock()
	return l.store.Limits.Renew(ctx, places)
}
