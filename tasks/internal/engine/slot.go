package engine

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"time"

	"muster/tasks/internal/graph"
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
	keptLarge = 8                      // workflows whose graphs Redis need not send again
)

// slot serves a wake-task: it takes and runs nodes until there are none, or its time is over.
type slot struct {
	w       *Worker
	wake    Wake
	counted bool              // among the slots that take from the queue
	recent  []string          // workflows whose graphs this worker has
	values  map[string][]byte // results of the last batch, by workflow and node
}

// Serve takes and runs nodes for a wake-task.
func (w *Worker) Serve(ctx context.Context, k Wake) {
	s := &slot{w: w, wake: k}
	began := w.e.clock.Now()
	arrive, empty := k.Gen, 0
	var b *batch
	for n := 0; ; n++ {
		over := w.e.clock.Now().Sub(began) > slotTurn || w.stopping() || w.slots.crowded()
		mean := w.mean(k.Queue)
		slow := mean > slowAfter/2 // the slot will not come back for more soon
		leave := empty >= lingers || mean >= time.Millisecond
		t := &store.Turn{Arrive: arrive, Counted: s.counted, Take: !over, Leave: over || s.counted && slow, Enter: !over && !slow && !s.counted,
			OrLeave: leave, Most: w.batchSize(mean), Least: int(time.Millisecond / max(mean, time.Microsecond))}
		res, err := s.turn(ctx, b, t)
		if err != nil {
			return // the worker is killed: others return its batch
		}
		arrive = ""
		s.counted = !over && !slow
		s.settle(ctx, res.Todos)
		if over || res.Said == store.TurnYield {
			return
		}
		if len(res.Batch) == 0 {
			if empty++; leave || !s.counted {
				return
			}
			<-w.e.clock.After(time.Duration(empty) * lingerFor)
			b = nil
			continue
		}
		empty = 0
		b = s.read(ctx, t.ID, res)
		taken := len(b.todo)
		s.perform(ctx, b)
		s.counted = b.isCounted()
		if n > 0 && s.counted && taken < t.Most/4 && !b.leads() {
			<-w.e.clock.After(gatherFor) // small batches cost more in calls than in work
		}
	}
}

// turn ends batch b, if it is not nil, and makes turn t, which says what else to do. It tries until Redis has answered
// or the worker is killed: a turn that is made twice changes nothing more.
func (s *slot) turn(ctx context.Context, b *batch, t *store.Turn) (*store.Turned, error) {
	w := s.w
	t.Shard, t.Worker, t.Queue, t.Others = s.wake.Shard, w.cfg.Name, s.wake.Queue, w.others[s.wake.Queue]
	t.ID, t.Known = w.batches.add(), s.recent
	var done []result
	if b != nil {
		b.mu.Lock()
		t.Old, t.OldAt, t.Back = b.id, b.taken, b.lease(b.todo)
		done = b.done
		b.todo, b.done = nil, nil
		b.mu.Unlock()
		t.Changes = w.changes(b, done)
		if t.Take && !t.Leave {
			t.Lane = b.lane
			s.remember(done)
		}
	}
	res, err := s.make(ctx, t)
	if err == nil {
		w.count(res, done)
	}
	return res, err
}

// count adds stored results to the statistics of the worker.
func (w *Worker) count(res *store.Turned, done []result) {
	if res.Said == store.TurnGone {
		return
	}
	for i := range done {
		switch r := &done[i]; {
		case r.kind == "S":
			w.stats.succeeded.Add(1)
		case r.kind == "F" || r.kind == "X":
			w.stats.failed.Add(1)
		case r.kind == store.ChangeAgain && r.state == "T":
			w.stats.retried.Add(1)
		}
	}
}

// make makes a turn. It tries until Redis has answered or the worker is killed.
func (s *slot) make(ctx context.Context, t *store.Turn) (*store.Turned, error) {
	w := s.w
	var res *store.Turned
	err := w.insist(func() error {
		var err error
		res, err = w.e.store.Turns.Make(within(ctx), t)
		return err
	})
	if err != nil {
		return nil, err
	}
	if t.Old != "" {
		w.batches.drop(t.Old)
		if res.Said == store.TurnGone {
			w.log.Warn("results were refused: others have taken over the nodes, or Redis has lost the batch", "queue", t.Queue)
		}
	}
	if t.Keep == "" && len(res.Batch) == 0 {
		w.batches.drop(t.ID)
	}
	w.e.wake(within(ctx), res.Wants)
	return res, nil
}

// remember keeps the results of the last batch, which may be inputs of the next one.
func (s *slot) remember(done []result) {
	s.values = nil
	for i := range done {
		if r := &done[i]; r.kind == "S" && r.id.Inst < 0 && len(r.g.Succs(r.id.Index)) > 0 {
			if s.values == nil {
				s.values = map[string][]byte{}
			}
			s.values[r.fl.ID+"/"+r.node] = r.body
		}
	}
}

// settle takes the steps that follow from a turn.
func (s *slot) settle(ctx context.Context, todos []store.Todo) {
	w := s.w
	for _, t := range todos {
		err := w.insist(func() error {
			fl, err := w.e.load(within(ctx), t.ID)
			if errors.Is(err, ErrUnknown) || errors.Is(err, errUnreadable) {
				return nil
			}
			if err != nil {
				return err
			}
			if !t.Timer.IsZero() {
				w.setTimer(t.Timer)
				t.Timer = time.Time{} // no other worker needs to know: if this one dies, they find the entry in time
			}
			return w.e.settle(within(ctx), fl, t)
		})
		if err != nil {
			return
		}
	}
}

// read returns the batch that a turn took.
func (s *slot) read(ctx context.Context, id string, res *store.Turned) *batch {
	w := s.w
	b := &batch{mu: newLock(), shard: s.wake.Shard, lane: res.Lane, id: id, taken: res.Taken, skew: res.Now.Sub(w.e.clock.Now())}
	for i := range res.Batch {
		el := &res.Batch[i]
		err := w.insist(func() error { return s.readElement(within(ctx), b, el) })
		if err != nil {
			return b
		}
	}
	return b
}

// readElement adds the nodes of an element to a batch. What cannot be read is given up or put back.
func (s *slot) readElement(ctx context.Context, b *batch, el *store.Element) error {
	w := s.w
	fl, err := s.flowOf(ctx, el)
	if errors.Is(err, ErrUnknown) {
		return nil
	}
	if err != nil && !errors.Is(err, errUnreadable) {
		return err
	}
	n := len(b.todo)
	for i, node := range el.Nodes {
		it := &item{fl: fl, node: node, lost: el.Lost}
		bad := err
		if bad == nil {
			it.rec = store.ParseRecord(el.Records[i], fl.Created)
			if it.rec.Terminal() || it.rec.State == 'P' || it.rec.State == 'E' || it.rec.State == 'e' || it.rec.State == 'W' {
				continue // it was ended or opened while it was ready
			}
			it.id, it.g, bad = w.e.nodeOf(ctx, fl, node)
			if bad == nil && it.id.Inst < 0 && it.g.Virtual(it.id.Index) {
				bad = errUnreadable
			}
		} else {
			it.fl = &flow{Flow: el.Flow}
			it.rec = store.ParseRecord(el.Records[i], 0)
		}
		switch {
		case bad == nil:
			b.todo = append(b.todo, it)
		case errors.Is(bad, errUnreadable):
			if err := w.unreadable(ctx, b, it, bad); err != nil {
				b.todo = b.todo[:n]
				return err
			}
		case errors.Is(bad, ErrUnknown):
		default:
			b.todo = b.todo[:n]
			return bad
		}
	}
	return nil
}

// flowOf returns the workflow of an element.
func (s *slot) flowOf(ctx context.Context, el *store.Element) (*flow, error) {
	e := s.w.e
	var g *graph.Graph
	var err error
	if el.Graph != nil {
		g, err = e.learn(el.Flow.ID, "", el.Graph, true)
	} else {
		g, err = e.graphOf(ctx, el.Flow, "")
	}
	if err != nil {
		return nil, err
	}
	if len(g.Nodes) > 1 && !slices.Contains(s.recent, el.Flow.ID) {
		s.recent = append(s.recent[max(0, len(s.recent)-keptLarge+1):], el.Flow.ID)
	}
	return newFlow(el.Flow, g), nil
}

// perform runs the nodes of a batch, one after the other.
func (s *slot) perform(ctx context.Context, b *batch) {
	w := s.w
	began := w.e.clock.Now()
	b.counted = s.counted
	if s.counted || len(b.todo) > 1 {
		stop := w.e.clock.AfterFunc(slowAfter, func() { s.handBack(ctx, b) })
		defer stop()
	}
	n := 0
	for !w.stopping() {
		it := b.next()
		if it == nil {
			break
		}
		n++
		r, ok := w.attempt(ctx, s, b, it)
		b.end(r, ok)
		if b.large() {
			s.store(ctx, b)
		}
	}
	if n > 0 {
		w.learnMean(s.wake.Queue, w.e.clock.Now().Sub(began)/time.Duration(n))
	}
}

// large reports whether there are more results than should wait for the end of the batch.
func (b *batch) large() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.bytes > doneMost && len(b.todo) > 0
}

// store stores the results of a batch that goes on.
func (s *slot) store(ctx context.Context, b *batch) {
	b.mu.Lock()
	defer b.mu.Unlock()
	t := &store.Turn{Keep: b.lease(b.todo)}
	s.part(ctx, b, t)
}

// handBack gives back the nodes that a batch has not begun, because one takes long, and stores its results so far.
func (s *slot) handBack(ctx context.Context, b *batch) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.run == nil {
		return
	}
	t := &store.Turn{Keep: b.lease([]*item{b.run}), Back: b.lease(b.todo), Leave: true, Counted: b.counted}
	b.todo, b.counted = nil, false
	s.part(ctx, b, t)
}

// part makes a turn in the middle of a batch, which goes on under a new id. The caller holds b.mu.
func (s *slot) part(ctx context.Context, b *batch, t *store.Turn) {
	w := s.w
	t.Shard, t.Worker, t.Queue = s.wake.Shard, w.cfg.Name, s.wake.Queue
	t.ID, t.Old, t.OldAt = w.batches.add(), b.id, b.taken
	done := b.done
	t.Changes = w.changes(b, done)
	b.done, b.bytes = nil, 0
	res, err := s.make(ctx, t)
	if err != nil {
		return
	}
	w.count(res, done)
	// In any case: if the batch is still ours it has the new id now, also when this was the second try of a turn whose
	// answer was lost.
	b.id = t.ID
	s.settle(ctx, res.Todos)
}

// batchSize returns how many nodes a batch should have if a task takes mean; 1 if that is not known.
func (w *Worker) batchSize(mean time.Duration) int {
	if mean == 0 {
		return 1
	}
	return int(min(batchMost, max(1, batchWork/mean)))
}

// mean returns about how long a node of a queue takes; 0 if that is not known.
func (w *Worker) mean(queue string) time.Duration { return time.Duration(w.means[queue].Load()) }

func (w *Worker) learnMean(queue string, took time.Duration) {
	m, ok := w.means[queue]
	if !ok {
		return
	}
	took = max(took, time.Microsecond)
	old := m.Load()
	if old == 0 {
		old = int64(took)
	}
	m.Store(max(1, old+(int64(took)-old)/4)) // another slot may overwrite it, which does no harm
}

// newMeans returns unknown means for queues.
func newMeans(queues map[string]int) map[string]*atomic.Int64 {
	out := map[string]*atomic.Int64{}
	for q := range queues {
		out[q] = &atomic.Int64{}
	}
	return out
}
