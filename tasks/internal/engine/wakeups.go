package engine

import (
	"context"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"muster/tasks/internal/store"
)

// How a worker waits at the wake-up lists of its queues.
const (
	wakeupWait  = 5 * time.Second        // longest wait in one call
	wakeupRetry = 200 * time.Millisecond // pause after a failed call
	nudgeFor    = time.Second            // how long a worker that stops waits for the end of the call
)

// wakeups waits for ready nodes while a slot is free. Redis gives each wake-up to one worker, the one that has waited for
// the longest time.
type wakeups struct {
	*local
	slots *slots
	taker *taker

	lists   *store.Wakeups
	waits   atomic.Int32 // calls to Redis that block, or are about to
	waiting sync.WaitGroup
	serving sync.WaitGroup
}

func newWakeups(l *local, s *slots, tk *taker) *wakeups {
	return &wakeups{local: l, slots: s, taker: tk}
}

// run serves wake-ups until the worker stops: it waits at each shard.
func (u *wakeups) run(ctx context.Context) error {
	var err error
	if u.lists, err = u.store.Queues.Wakeups(ctx, u.cfg.Name); err != nil {
		return err
	}
	ctx = context.WithoutCancel(ctx)
	for shard := range u.lists.Shards {
		u.waiting.Go(func() { u.wait(ctx, shard) })
	}
	return nil
}

// wait serves the wake-ups of a shard until the worker stops.
func (u *wakeups) wait(ctx context.Context, shard int) {
	failed := false
	for {
		open := u.slots.open(u.order())
		if open == nil || u.life.stopping() {
			return
		}
		u.waits.Add(1)
		k, ok, err := u.lists.Next(ctx, shard, open, wakeupWait)
		u.waits.Add(-1)
		switch {
		case err != nil && u.life.stopping():
			return
		case err != nil:
			if !failed { // of an outage only the first
				u.log.WarnContext(ctx, "wait for ready nodes failed", "error", err)
			}
			failed = true
			select {
			case <-u.stop:
			case <-u.killed:
			case <-u.clock.After(wakeupRetry):
			}
		default:
			failed = false
			if ok {
				u.serve(ctx, k)
			}
		}
	}
}

// serve takes and runs nodes for a wake-up, in a slot. If wake-ups of other shards have taken the last slot, or the worker
// stops, another worker gets it.
func (u *wakeups) serve(ctx context.Context, k Wake) {
	if !u.slots.tryAcquire(k.Queue) {
		if err := u.store.Queues.PutBack(within(ctx), k); err != nil {
			u.log.WarnContext(ctx, "a wake-up was lost; workers will find the ready nodes", "error", err)
		}
		return
	}
	u.serving.Go(func() {
		defer u.slots.release(k.Queue)
		u.taker.serve(ctx, k)
	})
}

// order returns the queues in the order in which they are served: by weight, or at random with probabilities by weight.
func (u *wakeups) order() []string {
	at := map[string]float64{}
	for q, weight := range u.cfg.Queues {
		at[q] = float64(weight)
		if !u.cfg.Strict {
			at[q] = math.Pow(rand.Float64(), 1/float64(weight))
		}
	}
	out := make([]string, 0, len(at))
	for q := range at {
		out = append(out, q)
	}
	slices.SortFunc(out, func(a, b string) int {
		if at[a] > at[b] {
			return -1
		}
		return 1
	})
	return out
}

// nudge ends the calls that wait, because a slot of a queue is free that they leave out, or the worker stops.
func (u *wakeups) nudge() {
	if u.waits.Load() == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), nudgeFor)
	defer cancel()
	if err := u.store.Queues.Nudge(ctx, u.cfg.Name); err != nil {
		u.log.Warn("wait for ready nodes continues until its timeout", "error", err)
	}
}

// end waits until all waits have ended, but not for a Redis that does not respond.
func (u *wakeups) end() {
	if u.lists == nil {
		return // it was not started
	}
	u.nudge()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		u.waiting.Wait()
		_ = u.lists.Close()
		u.serving.Wait()
	}()
	t := time.NewTimer(nudgeFor)
	defer t.Stop()
	select {
	case <-ended:
	case <-t.C:
	}
}
