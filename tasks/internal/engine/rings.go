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

// How a worker waits at the rings of its queues.
const (
	ringWait  = 5 * time.Second        // longest wait in one call
	ringShort = time.Second            // the same for a wait that the worker cannot end, and how often a ring is read without waiting
	ringRetry = 200 * time.Millisecond // pause after a failed call
	endFor    = time.Second            // how long a worker that stops waits for the end of its calls
	mostWaits = 64                     // waits at once, each of which occupies a connection
)

// rings waits at the rings of the queues of a worker while a slot is free, and twice while two are. Redis gives each entry to one worker: to
// the one that has waited for the longest time. A waiter that runs a task waits no more, and another one needs no second slot.
type rings struct {
	*local
	slots      *slots
	dispatcher *dispatcher

	rings  *store.Rings
	rooms  []*waitingRoom
	failed atomic.Bool // the call that ended last has failed

	mu      sync.Mutex      // guards the fields below
	paused  map[string]bool // queues that were found paused
	resumed chan struct{}   // closed when that changes
}

// waitingRoom is where waiters wait at a ring.
type waitingRoom struct {
	shard int
	queue string
	waits int  // waiters in it; guarded by slots.mu
	polls bool // they do not block
}

// run serves entries until the worker stops.
func (r *rings) run(ctx context.Context) error {
	shards, err := r.store.Shards(ctx)
	if err != nil {
		return err
	}
	queues := r.order("", true)
	r.rings = r.store.Queues.Rings(r.cfg.Name, min(mostWaits, 2*shards*len(queues)))
	ctx = context.WithoutCancel(ctx)
	for _, q := range queues {
		for shard := range shards {
			r.rooms = append(r.rooms, &waitingRoom{shard: shard, queue: q, polls: len(r.rooms) >= mostWaits})
		}
	}
	for i, w := range r.rooms {
		go r.wait(ctx, w)
		if r.rings.Owned() && r.cfg.QueueLimits[w.queue] == 0 && len(r.rooms)+i < mostWaits {
			go r.wait(ctx, w)
		}
	}
	return nil
}

// wait serves the entries of a ring until the worker stops. Without a wait it reads the ring at intervals.
func (r *rings) wait(ctx context.Context, w *waitingRoom) {
	wait := ringWait
	switch {
	case w.polls:
		wait = 0
	case !r.rings.Owned():
		wait = ringShort
	}
	for !r.life.stopping() {
		if r.holds(ctx, w) {
			continue
		}
		if !r.slots.enter(w) {
			return
		}
		e, err := r.rings.Next(ctx, w.shard, w.queue, wait)
		taken := r.slots.leave(w, e != nil)
		if e != nil && !taken {
			r.putBack(ctx, e)
		}
		r.slots.waits.Done()
		if err != nil {
			if r.life.stopping() {
				return
			}
			if !r.failed.Swap(true) { // of an outage only the first
				r.log.WarnContext(ctx, "wait for ready nodes failed", "error", err)
			}
			r.sleep(ringRetry, nil)
			continue
		}
		r.failed.Store(false)
		switch {
		case taken:
			r.dispatcher.serve(e)
		case e == nil && wait == 0:
			r.sleep(ringShort, nil)
		}
	}
}

// sleep waits for a time, for more, or for the end of the worker.
func (r *rings) sleep(d time.Duration, more <-chan struct{}) {
	select {
	case <-more:
	case <-r.stop:
	case <-r.killed:
	case <-r.clock.After(d):
	}
}

// hold lets no waiter take entries of a queue that was found paused, until it is resumed.
func (r *rings) hold(queue string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.paused[queue] = true
}

// resume lets waiters look whether queues are still paused.
func (r *rings) resume() {
	r.mu.Lock()
	defer r.mu.Unlock()
	clear(r.paused)
	close(r.resumed)
	r.resumed = make(chan struct{})
}

// holds reports whether a queue is held. It waits then for a time.
func (r *rings) holds(ctx context.Context, w *waitingRoom) bool {
	r.mu.Lock()
	held, resumed := r.paused[w.queue], r.resumed
	r.mu.Unlock()
	if !held {
		return false
	}
	r.sleep(ringShort, resumed)
	if paused, err := r.store.Queues.IsPaused(within(ctx), w.shard, w.queue); err == nil && !paused {
		r.mu.Lock()
		delete(r.paused, w.queue)
		r.mu.Unlock()
	}
	return true
}

// putBack returns an entry for which there is no slot, so that another worker gets it.
func (r *rings) putBack(ctx context.Context, e *store.RingEntry) {
	if err := r.store.Queues.PutBack(within(ctx), r.cfg.Name, e); err != nil {
		r.log.WarnContext(ctx, "an entry of a queue was not returned; this worker will find it", "queue", e.Queue, "error", err)
	}
}

// order returns the queues in the order in which a slot of a queue takes from them: by weight, or at random with probabilities by weight.
// Other queues with a limit are left out, unless all are wanted.
func (r *rings) order(queue string, all bool) []string {
	at := map[string]float64{}
	for q, weight := range r.cfg.Queues {
		if !all && q != queue && r.cfg.QueueLimits[q] > 0 {
			continue
		}
		at[q] = float64(weight)
		if !r.cfg.Strict && !r.cfg.Manual {
			at[q] = math.Pow(rand.Float64(), 1/float64(weight))
		}
	}
	out := make([]string, 0, len(at))
	for q := range at {
		out = append(out, q)
	}
	slices.SortFunc(out, func(a, b string) int {
		if at[a] > at[b] || at[a] == at[b] && a < b {
			return -1
		}
		return 1
	})
	return out
}

// backlog returns the queues whose rings in a shard no waiter blocks on, so that they may have entries.
func (r *rings) backlog(shard int, queues []string) []string {
	return slices.DeleteFunc(slices.Clone(queues), func(q string) bool { return r.blocks(shard, q) })
}

// blocks reports whether a waiter blocks on the ring of a queue in a shard.
func (r *rings) blocks(shard int, queue string) bool {
	return slices.ContainsFunc(r.rooms, func(w *waitingRoom) bool {
		return w.shard == shard && w.queue == queue && !w.polls && r.slots.waitsAt(w) > 0
	})
}

// end ends the waits, for at most endFor: Redis may not respond. It does not wait for handlers that were given up in the goroutines of waiters.
func (r *rings) end() {
	if r.rings == nil {
		return // it was not started
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = r.rings.Close()
		r.slots.waits.Wait()
		r.dispatcher.wait()
	}()
	select {
	case <-ended:
	case <-time.After(endFor):
	}
}
