package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"muster/tasks/internal/graph"
	"muster/tasks/internal/store"
)

// How nodes are taken and results are stored.
const (
	slotTurn    = 200 * time.Millisecond // then a slot is free for other queues and shards
	callsAtOnce = 2                      // calls of a shard at a time
	aheadMost   = 256                    // nodes that wait for a slot of this worker
	aheadFor    = time.Millisecond       // how long they should wait
	slowAfter   = 20 * time.Millisecond  // then they go back
	doneMost    = 256                    // results of a call
	doneBytes   = 1 << 20                // bytes of results of a call, unless there is only one
)

// dispatcher takes nodes for the free slots of a worker, and stores the results. Each call stores the results that have come since
// the last one.
type dispatcher struct {
	*local
	graphs   *graphs
	advancer *advancer
	agenda   *agenda
	runner   *runner
	limiter  *limiter
	slots    *slots
	rings    *rings
	leases   *leases
	means    means
	tally    *tally

	mu     sync.Mutex // guards the fields below
	idle   *sync.Cond
	busy   int     // running nodes, calls, and steps
	ahead  []*item // that wait for a slot
	shards map[int]*outbox

	stopTimer func() bool // of the timer after which nodes that wait go back; nil if there is none
}

// slot is a slot that is in use.
type slot struct {
	queue string
	began time.Time
}

// outbox has what the next call of a shard is for.
type outbox struct {
	shard   int
	calls   int
	done    []result
	bytes   int // of done
	back    []store.NodeLease
	entries []heldEntry
	slots   []*slot // that are to get nodes
	flush   bool    // results do not wait for more
}

// heldEntry is an entry of a ring that the worker has.
type heldEntry struct {
	*store.RingEntry
	consumed func()
}

func newDispatcher(l *local, s *slots) *dispatcher {
	d := &dispatcher{local: l, slots: s, leases: newLeases(l), means: newMeans(l.cfg.Queues), tally: &tally{local: l, due: make(chan struct{}, 1), counts: map[store.Counted]*store.Count{}}, shards: map[int]*outbox{}}
	d.idle = sync.NewCond(&d.mu)
	return d
}

// start runs f in a goroutine, and lets wait wait for its end.
func (d *dispatcher) start(f func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.startLocked(f)
}

func (d *dispatcher) startLocked(f func()) {
	d.busy++
	go d.work(func() bool { f(); return true })
}

// work runs f, which busy counts until it returns true: else another goroutine has its place.
func (d *dispatcher) work(f func() bool) {
	if f() {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.busy--
		d.idle.Broadcast()
	}
}

// wait waits until nothing runs, and all results are stored.
func (d *dispatcher) wait() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for {
		for d.busy > 0 {
			d.idle.Wait()
		}
		if d.returnLocked(d.clock.Now()); d.busy == 0 {
			return
		}
	}
}

// outboxLocked returns the outbox of a shard.
func (d *dispatcher) outboxLocked(shard int) *outbox {
	o := d.shards[shard]
	if o == nil {
		o = &outbox{shard: shard}
		d.shards[shard] = o
	}
	return o
}

// serve runs the nodes of an entry of a ring, in a slot of its queue that was acquired. A single task runs in this goroutine if another
// one waits at the ring.
func (d *dispatcher) serve(e *store.RingEntry) {
	sl := &slot{e.Queue, d.clock.Now()}
	if !e.Single() {
		d.enter(heldEntry{e, d.leases.hold(e)}, sl)
		return
	}
	d.mu.Lock()
	d.busy++
	d.mu.Unlock()
	singles := func() bool { return d.singles(e, sl) }
	if d.rings.blocks(e.Shard, e.Queue) {
		d.work(singles)
	} else {
		go d.work(singles)
	}
}

// enter takes nodes with an entry of a ring.
func (d *dispatcher) enter(e heldEntry, sl *slot) {
	d.mu.Lock()
	defer d.mu.Unlock()
	o := d.outboxLocked(e.Shard)
	o.entries = append(o.entries, e)
	o.slots = append(o.slots, sl)
	d.callLocked(o)
}

// over reports whether a slot takes nothing more.
func (d *dispatcher) over(sl *slot) bool {
	return d.clock.Now().Sub(sl.began) > slotTurn || d.life.stopping() || d.slots.crowded()
}

// run runs an item in a slot, and then others that wait, until the slot is left to a call. If a handler keeps or ends the goroutine, see
// [Run.call], another one goes on, and run returns false or not at all.
func (d *dispatcher) run(it *item, sl *slot) bool {
	for it != nil {
		began := d.clock.Now()
		next := func(r result, ok bool) *item {
			d.means.learn(it.lease.Queue(), d.clock.Now().Sub(began))
			return d.ended(it, sl, r, ok)
		}
		r, ok, here := d.runner.attempt(context.Background(), it, func(result func() (result, bool)) {
			go d.work(func() bool { return d.run(next(result()), sl) })
		})
		if !here {
			return false
		}
		it = next(r, ok)
	}
	return true
}

// ended passes the result of an item on, and returns the next item for its slot, or nil if the slot is left to a call.
func (d *dispatcher) ended(it *item, sl *slot, r result, ok bool) (next *item) {
	if !ok {
		r = result{item: it}
	}
	d.gather(&r)
	return d.end(sl, r)
}

// end adds results of one shard to its outbox, unless they were stored. It returns the next item for a slot, or nil if there is no slot, or it is
// left to a call.
func (d *dispatcher) end(sl *slot, done ...result) (next *item) {
	if len(done) == 0 {
		return nil
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	o := d.outboxLocked(done[0].lease.Shard)
	killed := false
	select {
	case <-d.killed:
		killed = true
	default:
	}
	for _, r := range done {
		// A worker that was killed before it could run a node keeps its lease.
		if r.list == "" && (r.kind != "" || !killed) {
			o.done = append(o.done, r)
			o.bytes += len(r.body)
		}
	}
	if sl != nil {
		if next = d.nextLocked(sl); next == nil {
			o.slots = append(o.slots, sl)
		}
	}
	d.callLocked(o)
	return next
}

// nextLocked removes and returns the first item that waits and may run in a slot, or nil.
func (d *dispatcher) nextLocked(sl *slot) *item {
	if len(d.ahead) == 0 || d.life.stopping() || d.slots.crowded() {
		return nil
	}
	for i, it := range d.ahead {
		if q := it.lease.Queue(); d.slots.move(sl.queue, q) {
			sl.queue = q
			if d.ahead = slices.Delete(d.ahead, i, i+1); len(d.ahead) == 0 {
				if d.stopTimer != nil {
					d.stopTimer()
					d.stopTimer = nil
				}
				for _, o := range d.shards { // results of all shards have waited while nodes waited
					d.callLocked(o)
				}
			}
			return it
		}
	}
	return nil
}

// target returns how many nodes of a queue should wait for a slot: as many as run in a short time.
func (d *dispatcher) target(queue string) int {
	mean := d.means.of(queue)
	if d.cfg.OnDemand || mean == 0 || mean >= aheadFor {
		return 0
	}
	_, limit := d.slots.use()
	return int(min(aheadMost, time.Duration(limit)*aheadFor/mean))
}

// callLocked calls the script for an outbox, unless it has nothing to do or results can wait for more.
func (d *dispatcher) callLocked(o *outbox) {
	if o.calls >= callsAtOnce || !d.dueLocked(o) {
		return
	}
	o.calls++
	d.startLocked(func() {
		for d.call(o) {
		}
	})
}

// dueLocked reports whether there is a reason for a call: results wait for others while nodes wait for slots.
func (d *dispatcher) dueLocked(o *outbox) bool {
	if len(o.slots)+len(o.entries)+len(o.back) > 0 || len(o.done) >= doneMost/2 || o.bytes > doneBytes {
		return true
	}
	return len(o.done) > 0 && (o.flush || len(d.ahead) <= d.target(o.done[0].lease.Queue())/2)
}

// call stores results of a shard and takes nodes for its slots. It returns false if there is nothing to do.
func (d *dispatcher) call(o *outbox) bool {
	d.mu.Lock()
	if !d.dueLocked(o) {
		o.calls--
		d.mu.Unlock()
		return false
	}
	n := min(len(o.done), doneMost)
	bytes := 0
	for i := range n {
		if bytes += len(o.done[i].body); bytes > doneBytes && i > 0 {
			n = i
			break
		}
	}
	done := o.done[:n:n]
	o.done, o.bytes = o.done[n:], 0
	for i := range o.done {
		o.bytes += len(o.done[i].body)
	}
	t := &store.Turn{Shard: o.shard, Worker: d.cfg.Name, Back: o.back}
	o.back, o.flush = nil, o.flush && len(o.done) > 0
	var e heldEntry
	if len(o.entries) > 0 {
		e = o.entries[0]
		o.entries = o.entries[1:]
	}
	slots := o.slots
	o.slots = nil
	slots = d.roomLocked(t, e.RingEntry, slots, done)
	d.mu.Unlock()

	if e.RingEntry != nil && t.Most == 0 {
		_ = d.insist(func() error { return d.store.Queues.PutBack(within(context.Background()), d.cfg.Name, e.RingEntry) })
	}
	res, items := d.turn(t, done)
	if res != nil && e.RingEntry != nil {
		e.consumed()
	}
	if res != nil && res.Status == store.TurnPaused {
		d.rings.hold(e.Queue)
	}
	d.mu.Lock()
	d.ahead = append(d.ahead, items...)
	for _, sl := range slots {
		if it := d.nextLocked(sl); it != nil {
			d.busy++
			go d.work(func() bool { return d.run(it, sl) })
		} else {
			d.slots.release(sl.queue)
		}
	}
	d.handBackLocked()
	d.mu.Unlock()
	switch {
	case res == nil || len(res.Todos) == 0:
	case d.cfg.Manual:
		d.settle(res.Todos)
	default:
		d.start(func() { d.settle(res.Todos) })
	}
	return true
}

// roomLocked sets how many nodes a turn takes, and from which queues. It returns the slots, with those that it has acquired.
func (d *dispatcher) roomLocked(t *store.Turn, e *store.RingEntry, slots []*slot, done []result) []*slot {
	free := 0
	for _, sl := range slots {
		if !d.over(sl) {
			free++
		}
	}
	if e != nil {
		now := d.clock.Now()
		for most := e.Nodes(); free > 0 && free < most && d.slots.tryAcquire(e.Queue); free++ {
			slots = append(slots, &slot{e.Queue, now})
		}
		if most := d.mostLocked(e.Queue, free, slots); free > 0 && most > 0 {
			t.Entry, t.Most, t.Queues = e.Text, most, []store.Room{{Queue: e.Queue, Most: most}}
		}
		return slots
	}
	if len(done) == 0 || d.life.stopping() || free == 0 && len(slots) > 0 {
		return slots
	}
	// Nodes that follow the results in their lane go first, unless the turn is that of another queue.
	own := done[0].lease.Queue()
	order := d.rings.order("", true)
	backlog := d.rings.backlog(t.Shard, order)
	for _, q := range order {
		most := d.mostLocked(q, free, slots)
		if most == 0 || q != own && !slices.Contains(backlog, q) {
			continue
		}
		if q == own && len(t.Queues) == 0 {
			t.Lane = done[0].lease.Lane
		}
		t.Most = max(t.Most, most)
		if slices.Contains(backlog, q) {
			t.Queues = append(t.Queues, store.Room{Queue: q, Most: most})
		}
	}
	return slots
}

// mostLocked returns how many nodes of a queue a call may take for so many slots.
func (d *dispatcher) mostLocked(queue string, free int, slots []*slot) int {
	if d.cfg.QueueLimits[queue] > 0 {
		return min(free, d.slots.free(queue, slots))
	}
	return max(0, free+max(0, d.target(queue)-len(d.ahead)))
}

// turn stores results and takes nodes. It repeats the call until Redis has replied, or returns nil if the worker is killed.
func (d *dispatcher) turn(t *store.Turn, done []result) (*store.Turned, []*item) {
	t.ID = d.leases.begin()
	res := &store.Turned{}
	all := done
	var ended []store.NodeLease
	for first := true; len(done)+len(t.Back)+t.Most > 0; first = false {
		t.Done, t.Changes, t.Again = nil, d.changes(done), false
		for i := range done {
			t.Done = append(t.Done, done[i].lease)
		}
		if first {
			ended = append(t.Done, t.Back...)
		}
		calls := 0
		err := d.insist(func() (err error) {
			t.Again = calls > 0
			calls++
			res, err = d.store.Turns.Make(within(context.Background()), t)
			return err
		})
		if err != nil {
			d.leases.end(t.ID, nil)
			return nil, nil
		}
		if res.Status != store.TurnGone || len(res.Gone) == len(done) && calls > 1 { // all leases have ended: with the first call
			break
		}
		d.log.Warn("results were refused: others have taken over the nodes, or Redis has lost the leases", "nodes", len(res.Gone))
		kept := done[:0:0]
		for i := range done {
			if !slices.Contains(res.Gone, i) {
				kept = append(kept, done[i])
			} else if done[i].leased != nil {
				done[i].leased.end(false)
			}
		}
		done, res = kept, &store.Turned{}
	}
	var taken []store.NodeLease
	for i := range res.Nodes {
		el := &res.Nodes[i]
		for _, node := range el.Nodes {
			taken = append(taken, store.NodeLease{Shard: t.Shard, Worker: d.cfg.Name, Flow: el.Flow, Node: node, Lost: el.Lost, Taken: res.Taken, Call: t.ID, Lane: res.Lane})
		}
	}
	d.leases.end(t.ID, taken, ended...)
	d.count(done)
	d.limiter.parked(context.Background(), all) // also the refused ones: the connection may have repeated the call
	return res, d.read(res, taken, followed(done))
}

// count adds stored results to the statistics of the worker, and ends the making of leases.
func (d *dispatcher) count(done []result) {
	d.tally.add(done)
	for i := range done {
		switch r := &done[i]; {
		case r.leased != nil:
			r.leased.end(true)
		case r.kind == store.ChangeSucceed:
			d.stats.succeeded.Add(1)
		case r.kind == store.ChangeFail || r.kind == store.ChangeRevoke:
			d.stats.failed.Add(1)
		case r.kind == store.ChangeAgain && r.state == store.AgainRetry:
			d.stats.retried.Add(1)
		}
	}
}

// followed returns the results that may be inputs of nodes that were taken with them, by workflow and node.
func followed(done []result) map[string][]byte {
	var out map[string][]byte
	for i := range done {
		if r := &done[i]; r.kind == store.ChangeSucceed && r.id.Inst < 0 && len(r.g.Succs(r.id.Index)) > 0 {
			if out == nil {
				out = map[string][]byte{}
			}
			out[r.fl.Ref+"/"+r.node] = r.body
		}
	}
	return out
}

// read returns the nodes that a turn has taken.
func (d *dispatcher) read(res *store.Turned, taken []store.NodeLease, values map[string][]byte) (items []*item) {
	clock := clockReading{res.Now, d.clock.Now()}
	for i := range res.Nodes {
		el := &res.Nodes[i]
		var some []*item
		err := d.insist(func() (err error) {
			some, err = d.items(within(context.Background()), el, taken[:len(el.Nodes)])
			return err
		})
		if err != nil {
			return items
		}
		for j := range el.Nodes {
			k := slices.IndexFunc(some, func(it *item) bool { return it.node == el.Nodes[j] })
			if k >= 0 {
				some[k].clock, some[k].values = clock, values
				items = append(items, some[k])
				continue
			}
			d.mu.Lock() // there is nothing to run
			o := d.outboxLocked(taken[j].Shard)
			o.done = append(o.done, result{item: &item{lease: taken[j]}})
			d.mu.Unlock()
		}
		taken = taken[len(el.Nodes):]
	}
	return items
}

// items returns the nodes of an element that can run. It fails or returns nodes that it cannot read.
func (d *dispatcher) items(ctx context.Context, el *store.Element, leases []store.NodeLease) ([]*item, error) {
	fl, err := d.flowOf(ctx, el)
	if errors.Is(err, ErrUnknown) {
		return nil, nil
	}
	if err != nil && !errors.Is(err, errUnreadable) {
		return nil, err
	}
	var out []*item
	var v *values
	if err == nil {
		v = d.graphs.values(fl)
	}
	for i, node := range el.Nodes {
		it := &item{fl: fl, node: node, lost: el.Lost, lease: leases[i]}
		if el.Stopped == store.StoppedByCancel || el.Stopped == store.StoppedByDeadline {
			it.cancelled = cancelCause(el.Stopped)
		}
		bad := err
		if bad == nil {
			it.rec = store.ParseRecord(el.Records[i], fl.Created)
			it.rec.Input = el.Inputs[i]
			if it.rec.Terminal() || it.rec.State == store.StatePlanned || it.rec.State == store.StateMapping || it.rec.State == store.StateMapped || it.rec.State == store.StateOpen {
				continue // it was ended or opened while it was ready
			}
			it.id, it.g, bad = v.named(ctx, node)
			if bad == nil && it.id.Inst < 0 && it.g.Virtual(it.id.Index) {
				bad = errUnreadable
			}
		} else {
			it.fl = &flow{Flow: el.Flow}
		}
		switch {
		case bad == nil:
			out = append(out, it)
		case errors.Is(bad, errUnreadable):
			lease := &it.lease
			if lease.Call == "" {
				lease = nil
			}
			if err := d.advancer.giveUpIn(ctx, it.fl.Flow, bad, lease); err != nil {
				return nil, err
			}
		case errors.Is(bad, ErrUnknown):
		default:
			return nil, bad
		}
	}
	return out, nil
}

// flowOf returns the workflow of an element.
func (d *dispatcher) flowOf(ctx context.Context, el *store.Element) (*flow, error) {
	gs := d.graphs
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

// settle takes the steps that follow from a turn.
func (d *dispatcher) settle(todos []store.Todo) {
	for _, t := range todos {
		if t.Timer > 0 {
			d.agenda.setTimer(t.Timer)
			t.Timer = 0 // no other worker needs to know: if this one dies, they find the entry in time
		}
		err := d.insist(func() error {
			ctx := within(context.Background())
			fl, err := d.graphs.load(ctx, t.Ref)
			if err == nil {
				err = d.advancer.settle(ctx, fl, t)
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

// handBackLocked returns nodes that wait for slots after a time, because others take long, and stores results that wait for more.
func (d *dispatcher) handBackLocked() {
	if len(d.ahead) == 0 || d.stopTimer != nil {
		return
	}
	d.stopTimer = d.clock.AfterFunc(slowAfter, func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		if d.stopTimer == nil {
			return
		}
		d.stopTimer = nil
		d.returnLocked(d.clock.Now().Add(-slowAfter))
		d.handBackLocked()
	})
}

// returnLocked returns the nodes that have waited for slots since a time or longer, and stores all results.
func (d *dispatcher) returnLocked(since time.Time) {
	d.ahead = slices.DeleteFunc(d.ahead, func(it *item) bool {
		slow := !it.clock.at.After(since)
		if slow {
			o := d.outboxLocked(it.lease.Shard)
			o.back = append(o.back, it.lease)
		}
		return slow
	})
	for _, o := range d.shards {
		o.flush = true
		d.callLocked(o)
	}
}

// halt returns the nodes that have not begun, when the worker stops.
func (d *dispatcher) halt() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.returnLocked(d.clock.Now())
}

// singles runs workflows of one node in a slot, beginning with an entry of a ring. If a handler keeps or ends the goroutine, it does as run.
func (d *dispatcher) singles(e *store.RingEntry, sl *slot) bool {
	for e != nil && sl != nil && e.Single() {
		it, left := d.single(e, sl)
		if it == nil {
			e, sl = nil, left
			break
		}
		over, mine := d.leases.run(it), sl
		next := func(r result, ok bool) (e *store.RingEntry, left *slot, other *item) {
			over()
			return d.endSingle(it, mine, r, ok)
		}
		r, ok, here := d.runner.attempt(context.Background(), it, func(result func() (result, bool)) {
			go d.work(func() bool {
				e, left, other := next(result())
				return d.run(other, mine) && d.singles(e, left)
			})
		})
		if !here {
			return false
		}
		var other *item
		if e, sl, other = next(r, ok); !d.run(other, mine) {
			return false
		}
	}
	switch {
	case sl == nil:
	case e == nil:
		d.slots.release(sl.queue)
	default:
		d.enter(heldEntry{e, d.leases.hold(e)}, sl)
	}
	return true
}

// single returns the item of a workflow of one node, or nil if there is nothing to run. It returns no slot if that is left to a call.
func (d *dispatcher) single(e *store.RingEntry, sl *slot) (it *item, left *slot) {
	ctx := context.Background()
	one, row := &single{entry: e, consumed: d.leases.hold(e), mu: newLock()}, e.Row
	if row == nil {
		err := d.insist(func() (err error) { row, err = d.store.Queues.Read(within(ctx), e); return err })
		if err != nil {
			return nil, sl
		}
	}
	switch {
	case row.Paused:
		_ = d.insist(func() error { return d.store.Queues.PutBack(within(ctx), d.cfg.Name, e) })
		one.consumed()
		d.rings.hold(e.Queue)
		return nil, sl
	case row.Stopped != "":
		d.enter(heldEntry{e, one.consumed}, sl)
		return nil, nil
	}
	var now time.Time
	err := d.insist(func() (err error) { now, err = d.redisTime(within(ctx), e.Shard); return err })
	if err != nil {
		return nil, sl
	}
	if row.Exists && row.Record == nil {
		el, lease := e.Element(row), e.Lease(d.cfg.Name)
		lease.Taken = now
		err := d.insist(func() error {
			some, err := d.items(within(ctx), &el, []store.NodeLease{lease})
			if len(some) > 0 {
				it = some[0]
			}
			return err
		})
		if err != nil {
			return nil, sl
		}
	}
	if it == nil { // it has ended, or cannot be read
		_ = d.insist(func() error { return d.store.Queues.Drop(within(ctx), d.cfg.Name, e) })
		one.consumed()
		return nil, sl
	}
	it.single, it.clock = one, clockReading{now, d.clock.Now()}
	return it, sl
}

// endSingle stores the result of a workflow of one node. A success is stored by a short script; it returns the entry that was taken with that.
// Anything else is stored by a call for the shard, to which the slot is left, unless there is an item to run in it.
func (d *dispatcher) endSingle(it *item, sl *slot, r result, ok bool) (next *store.RingEntry, left *slot, other *item) {
	d.means.learn(it.single.entry.Queue, d.clock.Now().Sub(it.clock.at))
	if ok && r.kind == store.ChangeSucceed && !r.forget && !r.logged && it.fl.g.Progress == "" && !it.g.Drops {
		if next, stored := d.finish(&r, sl); stored {
			return next, sl, nil
		}
	}
	d.leases.lend(it)
	return nil, nil, d.ended(it, sl, r, ok)
}

// finish stores the success of a workflow of one node that has no lease. It reports whether that was possible.
func (d *dispatcher) finish(r *result, sl *slot) (next *store.RingEntry, stored bool) {
	one := r.single
	one.mu.Lock()
	defer one.mu.Unlock()
	if one.leased {
		return nil, false
	}
	s := store.Single{Entry: one.entry, Flow: r.fl.Flow, Record: d.record(r)}
	if !d.over(sl) {
		s.Queues = d.rings.backlog(one.entry.Shard, d.rings.order(sl.queue, false))
	}
	state := 0
	err := d.insist(func() (err error) {
		state, next, err = d.store.Turns.Finish(within(context.Background()), d.cfg.Name, &s)
		return err
	})
	if err != nil || state == store.FinishTurn {
		return nil, err != nil
	}
	one.ended = true
	one.consumed()
	if state == store.FinishOK {
		d.count([]result{*r})
	} else {
		d.log.Warn("result was refused: others have taken over the node", "queue", one.entry.Queue)
	}
	if next != nil {
		d.slots.move(sl.queue, next.Queue)
		sl.queue = next.Queue
	}
	return next, true
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
func (m means) of(queue string) time.Duration {
	if mean, ok := m[queue]; ok {
		return time.Duration(mean.Load())
	}
	return 0
}

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
