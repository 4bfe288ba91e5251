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

	waits   atomic.Bool // a call to Redis blocks, or is about to
	stopped chan struct{}
	serving sync.WaitGroup
}

func newWakeups(l *local, s *slots, tk *taker) *wakeups {
	return &wakeups{local: l, slots: s, taker: tk, stopped: make(chan struct{})}
}

// run serves wake-ups until the worker stops.
func (u *wakeups) run(ctx context.Context) error {
	lists, err := u.store.Queues.Wakeups(ctx, u.cfg.Name)
	if err != nil {
		return err
	}
	go func() {
		defer close(u.stopped)
		defer func() { _ = lists.Close() }()
		for {
			u.waits.Store(true)
			open := u.slots.open(u.order())
			if open == nil || u.life.stopping() {
				return
			}
			k, ok, err := lists.Next(context.WithoutCancel(ctx), u.taker.programs.queues(open), wakeupWait)
			u.waits.Store(false)
			switch {
			case err != nil && u.life.stopping():
				return
			case err != nil:
				u.log.WarnContext(ctx, "wait for ready nodes failed", "error", err)
				select {
				case <-u.stop:
				case <-u.killed:
				case <-u.clock.After(wakeupRetry):
				}
			case ok:
				u.serve(ctx, k)
			}
		}
	}()
	return nil
}

// serve takes and runs nodes for a wake-up, in a slot. If the worker has none because it stops, asynq gets a wake-task.
func (u *wakeups) serve(ctx context.Context, k Wake) {
	queue := store.BaseQueue(k.Queue)
	started := u.slots.tryAcquire(queue)
	u.serving.Go(func() {
		if !started && !u.slots.acquire(queue) {
			u.wake(within(ctx), []Wake{k})
			return
		}
		defer u.slots.release(queue)
		u.taker.serve(context.WithoutCancel(ctx), k)
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

// nudge ends the call that waits, because a slot of a queue is free that the call leaves out, or the worker stops.
func (u *wakeups) nudge() {
	if !u.waits.Load() {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), nudgeFor)
	defer cancel()
	if err := u.store.Queues.Nudge(ctx, u.cfg.Name); err != nil {
		u.log.Warn("wait for ready nodes continues until its timeout", "error", err)
	}
}

// end waits until run has ended, but not for a Redis that does not respond.
func (u *wakeups) end() {
	u.nudge()
	t := time.NewTimer(nudgeFor)
	defer t.Stop()
	select {
	case <-u.stopped:
		u.serving.Wait()
	case <-t.C:
	}
}
