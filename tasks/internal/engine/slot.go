package engine

import (
	"context"
	"errors"
	"fmt"
	"time"

	"muster/tasks/internal/graph"
	"muster/tasks/internal/store"
	"muster/tasks/tasktype"
)

// slot takes and runs nodes, beginning with an entry of a ring.
type slot struct {
	tk     *taker
	shard  int
	queue  string
	began  time.Time
	values map[string][]byte // results of the last batch, by workflow and node

	consumed func() // notes that the worker does not have its entry any more
}

// move makes the slot one of another queue.
func (s *slot) move(queue string) {
	if queue != s.queue {
		s.tk.slots.move(s.queue, queue)
		s.queue = queue
	}
}

// over reports whether the slot takes nothing more.
func (s *slot) over() bool {
	return s.tk.clock.Now().Sub(s.began) > slotTurn || s.tk.life.stopping() || s.tk.slots.crowded()
}

// single runs a workflow of one node. A success is stored by a short script, without a batch; it returns the entry that was taken with
// that. Anything else is stored as the result of a batch.
func (s *slot) single(ctx context.Context, e *store.RingEntry) (next *store.RingEntry) {
	tk, row := s.tk, e.Row
	if row == nil {
		err := tk.insist(func() (err error) { row, err = tk.store.Queues.Read(within(ctx), e); return err })
		if err != nil {
			return nil
		}
	}
	switch {
	case row.Paused:
		_ = tk.insist(func() error { return tk.store.Queues.PutBack(within(ctx), tk.cfg.Name, e) })
		tk.rings.hold(e.Queue)
		return nil
	case row.Stopped != "":
		s.run(ctx, e, nil)
		return nil
	}
	var now time.Time
	err := tk.insist(func() (err error) { now, err = tk.redisTime(within(ctx), e.Shard); return err })
	if err != nil {
		return nil
	}
	b := &batch{mu: newLock(), shard: e.Shard, lane: store.Lane(e.Queue, 0), taken: now, clock: clockReading{now, tk.clock.Now()}}
	consumed := s.consumed
	b.lend = func() string {
		defer consumed()
		id := tk.batches.add()
		_ = tk.insist(func() error {
			_, err := tk.store.Batches.Adopt(within(ctx), tk.cfg.Name, e, id, b.taken)
			return err
		})
		return id
	}
	if row.Exists && len(row.Record) > 0 && row.Record[0] == store.StateGiven {
		el := e.Element(row)
		if tk.insist(func() error { return s.readElement(within(ctx), b, &el) }) != nil {
			return nil
		}
	}
	it := b.next()
	if it == nil { // it has ended, or cannot be read
		_ = tk.insist(func() error { return tk.store.Queues.Drop(within(ctx), tk.cfg.Name, e) })
		return nil
	}
	began := tk.clock.Now()
	tk.batches.begin(b)
	r, ok := tk.runner.attempt(ctx, s, b, it)
	tk.batches.end(b)
	tk.means.learn(e.Queue, tk.clock.Now().Sub(began))
	b.end(r, ok)
	if ok && r.kind == store.ChangeSucceed && !r.forget && !r.logged && it.fl.g.Progress == "" {
		if next, stored := s.finish(ctx, e, b, &r); stored {
			return next
		}
	}
	b.name()
	s.run(ctx, nil, b)
	return nil
}

// finish stores the success of a workflow of one node without a batch. It reports whether that was possible.
func (s *slot) finish(ctx context.Context, e *store.RingEntry, b *batch, r *result) (next *store.RingEntry, stored bool) {
	tk := s.tk
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.id != "" {
		return nil, false
	}
	d := store.Single{Entry: e, Flow: r.fl.Flow, Record: tk.record(b, r), Now: b.clock.redis(tk.clock.Now())}
	if !s.over() {
		d.Queues = tk.rings.backlog(e.Shard, s.queue)
	}
	state := 0
	err := tk.insist(func() (err error) {
		state, next, err = tk.store.Turns.Finish(within(ctx), tk.cfg.Name, &d)
		return err
	})
	if err != nil || state == store.FinishTurn {
		return nil, err != nil
	}
	b.id, b.done = "-", nil
	if state == store.FinishOK {
		tk.count([]result{*r})
	} else {
		tk.log.WarnContext(ctx, "result was refused: others have taken over the node", "queue", e.Queue)
	}
	return next, true
}

// run takes and runs batches. The first turn takes with an entry, or ends a batch.
func (s *slot) run(ctx context.Context, e *store.RingEntry, b *batch) {
	tk, empty := s.tk, 0
	for n := 0; ; n++ {
		over, mean := s.over(), tk.means.of(s.queue)
		t := &store.Turn{Take: !over, Most: batchSize(mean)}
		switch {
		case e != nil && over:
			_ = tk.insist(func() error { return tk.store.Queues.PutBack(within(ctx), tk.cfg.Name, e) })
			return
		case e != nil:
			t.Queues, t.Entry = []string{e.Queue}, e.Text
		case !over:
			t.Queues = tk.rings.order(s.queue, false)
		}
		res, err := s.turn(ctx, b, t)
		if err != nil {
			return // the worker is killed: others return its batch
		}
		s.consumed()
		s.settle(ctx, res.Todos)
		if res.Status == store.TurnPaused {
			tk.rings.hold(e.Queue)
		}
		if over || res.Status == store.TurnPaused {
			return
		}
		ended := b != nil
		e = nil
		if len(res.Batch) == 0 {
			if empty++; n < 2 || empty > lingers || mean >= time.Millisecond {
				return
			}
			<-tk.clock.After(time.Duration(empty) * lingerFor)
			b = nil
			continue
		}
		empty = 0
		s.move(res.Lane[2:])
		b = s.read(ctx, t.ID, res)
		taken := len(b.todo)
		s.perform(ctx, b)
		if ended && mean < slowAfter/2 && taken < t.Most/4 && !b.leads() {
			<-tk.clock.After(gatherFor) // small batches cost more in calls than in work
		}
	}
}

// turn finishes batch b, if any, and runs the turn script with t. It retries until Redis has replied or the worker is
// killed: a repeated turn changes nothing more.
func (s *slot) turn(ctx context.Context, b *batch, t *store.Turn) (*store.Turned, error) {
	t.Shard, t.Worker = s.shard, s.tk.cfg.Name
	t.ID, t.Known = s.tk.batches.add(), s.tk.graphs.recentRefs()
	var done []result
	if b != nil {
		b.mu.Lock()
		t.Old, t.OldAt, t.Back = b.id, b.taken, b.lease(b.todo)
		done = b.done
		b.todo, b.done = nil, nil
		b.mu.Unlock()
		t.Changes = s.tk.changes(b, done)
		if len(t.Queues) > 0 {
			if t.Queues[0] == b.lane[2:] {
				t.Lane = b.lane
			}
			s.remember(done)
		}
	}
	res, err := s.make(ctx, t)
	if err == nil {
		if res.Status != store.TurnGone {
			s.tk.count(done)
		}
		s.tk.limiter.parked(ctx, done)
	}
	return res, err
}

// make runs the turn script. It retries until Redis has replied or the worker is killed.
func (s *slot) make(ctx context.Context, t *store.Turn) (*store.Turned, error) {
	var res *store.Turned
	err := s.tk.insist(func() error {
		var err error
		res, err = s.tk.store.Turns.Make(within(ctx), t)
		return err
	})
	if err != nil {
		return nil, err
	}
	if t.Old != "" {
		s.tk.batches.drop(t.Old)
		if res.Status == store.TurnGone {
			s.values = nil
			s.tk.log.WarnContext(ctx, "results were refused: others have taken over the nodes, or Redis has lost the batch", "queue", s.queue)
		}
	}
	if t.Keep == "" && len(res.Batch) == 0 {
		s.tk.batches.drop(t.ID)
	}
	return res, nil
}

// settle takes the steps that follow from a turn.
func (s *slot) settle(ctx context.Context, todos []store.Todo) {
	for _, t := range todos {
		if t.Timer > 0 {
			s.tk.agenda.setTimer(t.Timer)
			t.Timer = 0 // no other worker needs to know: if this one dies, they find the entry in time
		}
		err := s.tk.insist(func() error {
			fl, err := s.tk.graphs.load(within(ctx), t.Ref)
			if err == nil {
				err = s.tk.advancer.settle(within(ctx), fl, t)
			}
			// The agenda has an entry for each step, and its handler fails workflows whose data cannot be read. A
			// missing value means that Redis has lost both the change that the step follows and the entry.
			if errors.Is(err, ErrUnknown) || errors.Is(err, errUnreadable) || errors.Is(err, errNoValue) {
				return nil
			}
			return err
		})
		if err != nil {
			return
		}
	}
}

// remember keeps the results of the last batch, which may be inputs of the next one.
func (s *slot) remember(done []result) {
	s.values = nil
	for i := range done {
		if r := &done[i]; r.kind == store.ChangeSucceed && r.id.Inst < 0 && len(r.g.Succs(r.id.Index)) > 0 {
			if s.values == nil {
				s.values = map[string][]byte{}
			}
			s.values[r.fl.Ref+"/"+r.node] = r.body
		}
	}
}

// read returns the batch that a turn took.
func (s *slot) read(ctx context.Context, id string, res *store.Turned) *batch {
	b := &batch{mu: newLock(), shard: s.shard, lane: res.Lane, id: id, taken: res.Taken, clock: clockReading{res.Now, s.tk.clock.Now()}}
	for i := range res.Batch {
		el := &res.Batch[i]
		err := s.tk.insist(func() error { return s.readElement(within(ctx), b, el) })
		if err != nil {
			return b
		}
	}
	return b
}

// readElement adds the nodes of an element to a batch. It fails or returns nodes that it cannot read.
func (s *slot) readElement(ctx context.Context, b *batch, el *store.Element) error {
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
		switch {
		case el.Overdue:
			it.cancelled = tasktype.ErrDeadline
		case el.Cancelled:
			it.cancelled = tasktype.ErrCancelled
		}
		bad := err
		if bad == nil {
			it.rec = store.ParseRecord(el.Records[i], fl.Created)
			if it.rec.Terminal() || it.rec.State == store.StatePlanned || it.rec.State == store.StateMapping || it.rec.State == store.StateMapped || it.rec.State == store.StateOpen {
				continue // it was ended or opened while it was ready
			}
			it.id, it.g, bad = s.tk.graphs.node(ctx, fl, node)
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
			if _, err := s.tk.advancer.giveUpIn(ctx, it.fl.Flow, bad, s.tk.cfg.Name, b.id); err != nil {
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
	gs := s.tk.graphs
	var g *graph.Graph
	var err error
	if el.Graph != nil {
		g, err = gs.learn(el.Flow.Ref, "", "", el.Graph)
	} else {
		g, err = gs.of(ctx, el.Flow, "")
	}
	if err != nil {
		return nil, err
	}
	if len(g.Nodes) > 1 {
		gs.used(el.Flow.Ref)
	}
	fl := newFlow(el.Flow, g)
	if el.Planned == "" {
		return fl, nil
	}
	id, err := graph.ParseID(el.Nodes[0])
	if err != nil {
		return nil, fmt.Errorf("workflow %s %w: %w", fl.ID(), errUnreadable, err)
	}
	if fl.scope, fl.plan = id.Scope, gs.get(fl.Ref, id.Scope); fl.plan == nil || fl.plan.Planned != el.Planned {
		fl.plan, err = gs.of(ctx, fl.Flow, id.Scope)
	}
	return fl, err
}

// perform runs the nodes of a batch, one after the other.
func (s *slot) perform(ctx context.Context, b *batch) {
	began := s.tk.clock.Now()
	stop := s.tk.clock.AfterFunc(slowAfter, func() { s.handBack(ctx, b) })
	defer stop()
	n := 0
	for !s.tk.life.stopping() {
		it := b.next()
		if it == nil {
			break
		}
		n++
		r, ok := s.tk.runner.attempt(ctx, s, b, it)
		b.end(r, ok)
		if b.large() {
			s.store(ctx, b)
		}
	}
	if n > 0 {
		s.tk.means.learn(s.queue, s.tk.clock.Now().Sub(began)/time.Duration(n))
	}
}

// store stores the results of a batch that continues.
func (s *slot) store(ctx context.Context, b *batch) {
	b.mu.Lock()
	defer b.mu.Unlock()
	t := &store.Turn{Keep: b.lease(b.todo)}
	s.part(ctx, b, t)
}

// handBack returns the nodes that a batch has not started, because one takes long, and stores its results so far.
func (s *slot) handBack(ctx context.Context, b *batch) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.run == nil || len(b.todo) == 0 && len(b.done) == 0 {
		return
	}
	t := &store.Turn{Keep: b.lease([]*item{b.run}), Back: b.lease(b.todo)}
	b.todo = nil
	s.part(ctx, b, t)
}

// part makes a turn in the middle of a batch, which continues under a new id. The caller holds b.mu.
func (s *slot) part(ctx context.Context, b *batch, t *store.Turn) {
	t.Shard, t.Worker = s.shard, s.tk.cfg.Name
	t.ID, t.Old, t.OldAt = s.tk.batches.add(), b.id, b.taken
	done := b.done
	t.Changes = s.tk.changes(b, done)
	b.done, b.bytes = nil, 0
	res, err := s.make(ctx, t)
	if err != nil {
		return
	}
	if res.Status != store.TurnGone {
		s.tk.count(done)
	}
	s.tk.limiter.parked(ctx, done)
	// In any case: if the batch is still ours it has the new ID now, also when this was the retry of a turn whose
	// reply was lost.
	b.id = t.ID
	s.settle(ctx, res.Todos)
}
