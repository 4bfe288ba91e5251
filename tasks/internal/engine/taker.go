package engine

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"muster/tasks/internal/store"
)

// How a slot takes nodes. The numbers were measured with tasks of 0 to 500 ms: larger batches gain little, and keep
// nodes from other slots.
const (
	slotTurn  = 200 * time.Millisecond // then the slot is free for other queues, and a pause takes effect
	batchMost = 256                    // nodes of a batch
	batchWork = 3 * time.Millisecond   // how long a batch should take
	slowAfter = 20 * time.Millisecond  // then the nodes that were not begun go back
	doneMost  = 1 << 20                // bytes of results that wait for the end of their batch
	lingers   = 2                      // times that a slot looks at an empty queue of short tasks before it leaves
	lingerFor = 400 * time.Microsecond // before the first of these; the next wait is longer by as much
	gatherFor = time.Millisecond       // pause between small batches, in which more nodes become ready
)

// taker takes batches of ready nodes for the slots of a worker, and stores their results.
type taker struct {
	*local
	graphs   *graphs
	advancer *advancer
	agenda   *agenda
	runner   *runner
	limiter  *limiter
	slots    *slots
	rings    *rings
	batches  *batches
	means    means
	tally    *tally
}

// serve takes and runs nodes, beginning with an entry of a ring, until there are none or the time of a slot is over. It returns the queue
// that the slot belongs to then.
func (tk *taker) serve(ctx context.Context, e *store.RingEntry) (queue string) {
	s := &slot{tk: tk, shard: e.Shard, queue: e.Queue, began: tk.clock.Now()}
	for e != nil {
		key := *e
		key.Row = nil
		tk.batches.hold(key)
		s.consumed = sync.OnceFunc(func() { tk.batches.release(key) })
		consumed := s.consumed
		s.move(e.Queue)
		switch {
		case e.Foreign():
			tk.log.ErrorContext(ctx, "entry of a queue was dropped: no client of this release wrote it", "key", tk.store.RingOf(e), "entry", e.Text)
			_ = tk.insist(func() error { return tk.store.Queues.Drop(within(ctx), tk.cfg.Name, e) })
			e = nil
		case e.Single():
			e = s.single(ctx, e)
		default:
			s.run(ctx, e, nil)
			e = nil
		}
		consumed()
	}
	return s.queue
}

// batchSize returns how many nodes a batch should have if a task takes mean; 1 if that is not known.
func batchSize(mean time.Duration) int {
	if mean == 0 {
		return 1
	}
	return int(min(batchMost, max(1, batchWork/mean)))
}

// count adds stored results to the statistics of the worker.
func (tk *taker) count(done []result) {
	tk.tally.add(done)
	for i := range done {
		switch r := &done[i]; {
		case r.kind == store.ChangeSucceed:
			tk.stats.succeeded.Add(1)
		case r.kind == store.ChangeFail || r.kind == store.ChangeRevoke:
			tk.stats.failed.Add(1)
		case r.kind == store.ChangeAgain && r.state == store.AgainRetry:
			tk.stats.retried.Add(1)
		}
	}
}

// means holds about how many ns a node takes, by queue.
type means map[string]*atomic.Int64

// newMeans returns unknown means for queues.
func newMeans(queues map[string]int) means {
	out := means{}
	for q := range queues {
		out[q] = &atomic.Int64{}
	}
	return out
}

// of returns about how long a node of a queue takes; 0 if that is not known.
func (m means) of(queue string) time.Duration { return time.Duration(m[queue].Load()) }

// learn adds how long a node of a queue took.
func (m means) learn(queue string, took time.Duration) {
	mean, ok := m[queue]
	if !ok {
		return
	}
	took = max(took, time.Microsecond)
	old := mean.Load()
	if old == 0 {
		old = int64(took)
	}
	mean.Store(max(1, old+(int64(took)-old)/4)) // another slot may overwrite it, which does no harm
}
