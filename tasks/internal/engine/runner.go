package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"muster/tasks/internal/graph"
	"muster/tasks/internal/store"
	"muster/tasks/tasktype"
)

// runner runs nodes: it calls their handlers, and returns the results to store.
type runner struct {
	*local
	handlers  map[string]*Handler
	graphs    *graphs
	advancer  *advancer
	progress  *progress
	projector *progressWriter
	peers     *peers
	runs      *runs
	limiter   *limiter
	logs      *logs
	leases    *leases
}

// mostLost is how many workers may die with a node before it fails.
const mostLost = 10

// attempt runs the handler of an item and returns the result. ok is false if there is nothing to store. If the run is lost to another goroutine,
// see [Run.call], here is false, and rest gets a function that returns the result there.
func (rn *runner) attempt(ctx context.Context, it *item, rest func(func() (result, bool))) (res result, ok, here bool) {
	sp := &it.g.Specs[it.g.Nodes[it.id.Index].Spec]
	r := &Run{w: rn, it: it, fl: it.fl, g: it.g, id: it.id, spec: sp,
		Info: tasktype.Info{Workflow: it.fl.ID(), Node: it.node, Task: sp.Task, Queue: sp.QueueName(), Priority: sp.Priority,
			Attempt: it.rec.Attempts + 1, Worker: rn.cfg.Name, Key: it.fl.Ref + "." + it.node, Headers: it.fl.g.Headers}}
	if at := it.fl.g.Tick; at > 0 {
		r.Info.Tick = time.UnixMilli(at).UTC()
	}
	handlerCtx, cancel := context.WithCancelCause(context.Background())
	r.ctx, r.cancel = context.WithValue(handlerCtx, runKey{}, r), cancel
	err := rn.insist(func() error {
		var err error
		res, ok, err = rn.try(within(ctx), r)
		return err
	})
	if err != nil || r.handler == nil {
		res, ok = rn.end(ctx, r, res, ok, err)
		return res, ok, true
	}
	r.began = rn.clock.Now()
	called := func(a callResult) (result, bool) {
		r.took = rn.clock.Now().Sub(r.began)
		res, ok := r.resultOf(a)
		return rn.end(ctx, r, res, ok, nil)
	}
	a, here := r.call(r.handler, r.given, func(a callResult) { rest(func() (result, bool) { return called(a) }) })
	if here {
		res, ok = called(a)
	}
	return res, ok, here
}

// end ends an attempt, whose result is stored later. err is not nil if the worker was killed before the handler was called.
func (rn *runner) end(ctx context.Context, r *Run, res result, ok bool, err error) (result, bool) {
	defer r.cancel(nil)
	if r.leave != nil {
		r.leave()
	}
	it := r.it
	r.close()
	if r.output != nil {
		r.storeOutput(true)
	}
	if err != nil {
		return res, false
	}
	rn.limiter.release(ctx, r)
	if !ok || res.place == nil && res.list == "" {
		rn.stats.begun.Add(1)
	}
	if ok {
		res.item, res.began, res.took, res.outcome = it, r.began, r.took, r.outcome
		res.forget = r.close() || it.rec.State == store.StateReady
		res.logged = r.logged.Load()
		rn.tell(r)
		if it.id.Inst >= 0 && it.fl.g.Progress != "" && res.kind != store.ChangeAgain {
			rn.projector.touch(it.fl)
		}
	}
	return res, ok
}

// try makes an attempt up to the call of the handler, for which it sets handler and input, or returns the result if none is called. It fails if
// Redis could not be read, and can be repeated.
func (rn *runner) try(ctx context.Context, r *Run) (result, bool, error) {
	if r.it.lost > mostLost {
		return r.failed(tasktype.CodeLost, fmt.Sprintf("its worker died %d times", r.it.lost)), true, nil
	}
	if at := r.it.rec.Expires; at > 0 {
		r.expires = r.it.clock.local(time.UnixMilli(at))
		if rn.clock.Now().After(r.expires) {
			return rn.expired(ctx, r)
		}
	}
	if r.it.cancelled != nil {
		handles, err := rn.graphs.values(r.fl).handles(ctx, r.id)
		if err != nil {
			return result{}, false, rn.unreadable(ctx, r, err)
		}
		if !handles {
			return r.failed(cancelledNode(r.it.cancelled)), true, nil
		}
	}
	if r.spec.Sub > 0 {
		return rn.expand(ctx, r)
	}
	h := rn.handlers[r.spec.Task]
	outside := r.spec.External && (h == nil || !rn.cfg.Manual && !rn.cfg.OnDemand) // in tests a handler may supply the external result, and a program can lease it
	if h == nil && !outside {
		res, err := rn.unhandled(ctx, r)
		return res, err == nil, err
	}
	if r.it.lost >= store.Suspect {
		if r.leave == nil {
			r.leave = alone(rn.clock)
		}
		if r.leave == nil {
			return r.again(suspectPause+rand.N(suspectPause), ""), true, nil
		}
	}
	if !outside && h.Batch != nil && r.it.batch == nil {
		if r.it.lost < store.Suspect {
			return rn.gather(ctx, r, h)
		}
		r.it.batch = newBatch(1)
	}
	var input []byte
	if limits := h.limits(); limits != nil && !r.spec.External {
		var err error
		if input, err = rn.inputFor(ctx, r); input == nil {
			return result{}, false, err
		}
		if a := r.keys(h, limits, input); a != nil {
			res, ok := r.resultOf(*a)
			return res, ok, nil
		}
		if waits, err := rn.limiter.acquire(ctx, r); waits != nil || err != nil {
			return *cmp.Or(waits, &result{}), waits != nil, err
		}
	}
	r.started = true
	if outside {
		return r.open(), true, nil
	}
	if input == nil {
		var err error
		if input, err = rn.inputFor(ctx, r); input == nil {
			return result{}, false, err
		}
	}
	r.handler, r.given = h, input
	return result{}, false, nil
}

// expired returns the result of a node whose time is over, with its last error if it has run before. A handler's own
// error may have the same code: that task has failed, and was not revoked.
func (rn *runner) expired(ctx context.Context, r *Run) (result, bool, error) {
	message := "not begun, or not called again, before it expired"
	if r.it.rec.Attempts > 0 {
		last := store.FieldError + r.Info.Node
		fields, err := rn.store.Flows.Fields(ctx, r.fl.Flow, last)
		if err != nil {
			return result{}, false, err
		}
		message = fmt.Sprintf("not begun again before it expired; attempt %d failed: %s", r.it.rec.Attempts, fields[last])
	}
	res := r.failed(tasktype.CodeExpired, message)
	r.outcome, res.kind = tasktype.OutcomeRevoked, store.ChangeRevoke
	return res, true, nil
}

// inputFor returns the input of a run. It is nil without an error if there is nothing to run any more.
func (rn *runner) inputFor(ctx context.Context, r *Run) ([]byte, error) {
	input, err := r.input(ctx)
	if err != nil {
		return nil, rn.unreadable(ctx, r, err)
	}
	return input, nil
}

// unreadable returns an error of reading the workflow of a run; nil if there is nothing to run any more.
func (rn *runner) unreadable(ctx context.Context, r *Run, err error) error {
	switch {
	case errors.Is(err, ErrUnknown) || errors.Is(err, errNoValue):
		return nil // the workflow is gone, or Redis lost its dependency or plan
	case errors.Is(err, errUnreadable):
		return rn.advancer.giveUpIn(ctx, r.fl.Flow, err, rn.leases.lend(r.it))
	}
	return err
}

// input returns the input of a run. It has the results in memory that were stored when the node was taken.
func (r *Run) input(ctx context.Context) ([]byte, error) {
	if n := &r.g.Nodes[r.id.Index]; n.Kind != graph.Catch && r.it.rec.Input == nil && n.In > 0 && r.id.Inst < 0 {
		if v, ok := r.it.values[r.fl.Ref+"/"+r.id.At(n.In-1, -1).String()]; ok {
			return Bound(r.spec.Bind, v), nil
		}
	}
	return r.w.graphs.values(r.fl).input(ctx, r.g, r.id, &r.it.rec)
}

// expand runs a member of a map whose body is a graph: the graph takes its place.
func (rn *runner) expand(ctx context.Context, r *Run) (result, bool, error) {
	element, err := rn.inputFor(ctx, r)
	if element == nil {
		return result{}, false, err
	}
	r.outcome = tasktype.OutcomePlanned
	return r.planned(r.g.Subs[r.spec.Sub-1].With(element)), true, nil
}

// tell reports the end of a run to the observer.
func (rn *runner) tell(r *Run) {
	if rn.cfg.Observe == nil || r.outcome == "" {
		return
	}
	rn.cfg.Observe(tasktype.Attempt{Info: r.Info, Outcome: r.outcome, Code: r.code, Began: r.began, Took: r.took})
}

// suspects holds a value while a suspected node runs. Only one of them runs in a process: if the process dies, the
// others were not the cause.
var suspects = make(chan struct{}, 1)

// suspectPause is how long a suspected node is put back at least, and at most twice as long, when another one runs in this process.
const suspectPause = 100 * time.Millisecond

// suspectFor is how long a suspected node is alone in its process: one that runs for longer is probably not the cause.
const suspectFor = 30 * time.Second

// alone lets a suspected node run until leave is called. It returns nil if another one has begun in the last suspectFor and runs.
func alone(clock Clock) (leave func()) {
	select {
	case suspects <- struct{}{}:
	default:
		return nil
	}
	free := sync.OnceFunc(func() { <-suspects })
	stop := clock.AfterFunc(suspectFor, free)
	return func() { stop(); free() }
}
