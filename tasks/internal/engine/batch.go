package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"muster/tasks/internal/store"
	"muster/tasks/tasktype"
)

// Batch is how nodes are collected for one call of a handler: at most Size with the same key, and none waits for longer than Wait.
type Batch struct {
	Size int
	Wait time.Duration
	Key  func(input []byte) string // nil if all have the same key
}

// gather returns the result that lets a node wait for others of its batch.
func (rn *runner) gather(ctx context.Context, r *Run, h *Handler) (result, bool, error) {
	key := ""
	if h.Batch.Key != nil {
		input, err := rn.inputFor(ctx, r)
		if input == nil {
			return result{}, false, err
		}
		if a := r.compute(h, func() { key = h.Batch.Key(input) }); a != nil {
			res, ok := r.resultOf(*a)
			return res, ok, nil
		}
	}
	wait := h.Batch.Wait
	if r.it.gathered() {
		wait = min(wait, r.it.clock.local(time.UnixMilli(r.it.rec.At)).Sub(rn.clock.Now()))
	}
	if !r.expires.IsZero() {
		wait = min(wait, r.expires.Sub(rn.clock.Now())+time.Millisecond)
	}
	res := r.waits(store.AgainGathering, max(wait, time.Millisecond))
	res.list, res.size = store.BatchName(r.it.lease.Lane, r.Info.Task, key), h.Batch.Size
	return res, true, nil
}

// gathered reports whether the node has waited for its batch until rec.At.
func (it *item) gathered() bool { return it.rec.State == store.StateReady && it.rec.At > 0 }

// gather stores that the node of a result waits for its batch. If that is complete now, it runs the batch in the slot of the node.
func (d *dispatcher) gather(r *result) {
	if r.list == "" {
		return
	}
	began := d.clock.Now()
	defer func() { d.means.learn(r.lease.Queue(), d.clock.Now().Sub(began)) }()
	t := &store.Turn{Shard: r.lease.Shard, Worker: d.cfg.Name, Batch: r.list, Most: r.size, Lane: r.lease.Lane}
	res, items := d.turn(t, []result{*r})
	if res != nil {
		d.settle(res.Todos)
	}
	if len(items) == 0 {
		return
	}
	b, results := newBatch(len(items)), make([]result, len(items))
	var running sync.WaitGroup
	for i, it := range items {
		it.batch = b
		end := func(r result, ok bool) {
			defer running.Done()
			if !ok {
				r = result{item: it}
			}
			if b.leave(it) {
				results[i] = r
			} else {
				d.end(nil, r)
			}
		}
		running.Add(1)
		go func() {
			r, ok, here := d.runner.attempt(context.Background(), it, func(result func() (result, bool)) { go func() { end(result()) }() })
			if here {
				end(r, ok)
			}
		}()
	}
	running.Wait()
	d.end(nil, slices.DeleteFunc(results, func(r result) bool { return r.item == nil })...)
}

// batch is a call of a handler for several nodes. Each of them is an attempt, with its time limits, its middleware and its result. The
// handler is called when all have joined or ended.
type batch struct {
	mu      sync.Mutex // guards the fields below
	missing int        // nodes that have neither joined nor ended
	over    bool       // the handler has returned
	came    map[*item]bool
	members []*member
	call    func(context.Context, []any) []any
}

// member is a node that has joined.
type member struct {
	r    *Run
	ctx  context.Context
	in   any
	done chan memberResult
}

type memberResult struct {
	out any
	err error
}

func newBatch(nodes int) *batch { return &batch{missing: nodes, came: map[*item]bool{}} }

// leave notes that an item has ended. It reports whether the handler has returned.
func (b *batch) leave(it *item) bool {
	b.enter(it, nil, nil)
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.over
}

// enter notes that an item has joined or, without a member, has ended. It returns false if the item has done so before.
func (b *batch) enter(it *item, m *member, call func(context.Context, []any) []any) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.came[it] {
		return false
	}
	b.came[it] = true
	if m != nil {
		b.members = append(b.members, m)
		b.call = call
	}
	if b.missing--; b.missing == 0 && len(b.members) > 0 {
		go b.run()
	}
	return true
}

// Join waits for the call of the handler of a batch, which is made once for all of its nodes, and returns the result of this node.
func (r *Run) Join(ctx context.Context, in any, call func(context.Context, []any) []any) (any, error) {
	m := &member{r, ctx, in, make(chan memberResult, 1)}
	if !r.it.batch.enter(r.it, m, call) {
		return nil, &Verdict{Err: errors.New("a handler of batches is called once in an attempt"), Permanent: true}
	}
	res := <-m.done
	return res.out, res.err
}

type batchKey struct{}

// NodeContexts returns the contexts of the nodes of a batch; nil if ctx is not that of a call for a batch.
func NodeContexts(ctx context.Context) []context.Context {
	ctxs, _ := ctx.Value(batchKey{}).([]context.Context)
	return ctxs
}

// run calls the handler. Its context ends when those of all nodes have ended.
func (b *batch) run() {
	ctxs, ins, w := make([]context.Context, len(b.members)), make([]any, len(b.members)), b.members[0].r.w
	ctx, cancel := context.WithCancelCause(context.WithValue(context.Background(), batchKey{}, ctxs))
	defer cancel(nil)
	var left atomic.Int64
	left.Store(int64(len(ctxs)))
	for i, m := range b.members {
		ctxs[i], ins[i] = m.ctx, m.in
		defer context.AfterFunc(m.ctx, func() {
			if left.Add(-1) == 0 {
				cancel(context.Cause(m.ctx))
			}
		})()
	}
	var outs []any
	err := goexited().verdict()
	defer func() {
		if p := recover(); p != nil {
			err = b.members[0].r.panicked(p, "").verdict()
		}
		b.mu.Lock()
		b.over = true
		b.mu.Unlock()
		for i, m := range b.members {
			if err != nil {
				m.done <- memberResult{err: err}
			} else {
				m.done <- memberResult{out: outs[i]}
			}
		}
	}()
	select {
	case <-w.killed:
		err = &Verdict{Err: errKilled, Again: true, Delay: new(time.Duration)} // also if their contexts have not ended yet
		return
	default:
	}
	outs = b.call(ctx, ins)
	if err = nil; len(outs) != len(ins) {
		err = &Verdict{Err: fmt.Errorf("the handler returned %d outcomes for %d inputs", len(outs), len(ins)), Code: tasktype.CodeResult, Permanent: true}
	}
}
