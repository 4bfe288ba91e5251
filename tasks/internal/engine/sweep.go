package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"muster/tasks/internal/graph"
	"muster/tasks/internal/store"
)

// sweep does what the agenda says is due.
func (w *Worker) sweep(ctx context.Context) {
	next := time.NewTimer(0)
	defer next.Stop()
	planned := time.Now()
	for {
		select {
		case <-ctx.Done():
			return
		case at := <-w.timer:
			if t := time.UnixMilli(at); t.Before(planned) {
				planned = t
				next.Reset(time.Until(t))
			}
			continue
		case <-next.C:
		}
		wait, err := w.sweepOnce(ctx)
		if err != nil && ctx.Err() == nil {
			w.log.Warn("sweep of the agenda failed", "error", err)
		}
		planned = time.Now().Add(wait)
		next.Reset(wait)
	}
}

// looksPerSecond bounds how many nodes that wait in queues are looked at, by all workers together: where
// more wait than these in a minute, each has its turn less often.
const looksPerSecond = 2000

// sweepOnce does what is due, up to sweepMost lines of each shard. It returns when to come again.
func (w *Worker) sweepOnce(ctx context.Context) (time.Duration, error) {
	began := time.Now()
	shards, err := w.e.store.Sweep(ctx, claimFor, sweepMost)
	if err != nil {
		return sweepEvery, err
	}
	wait := sweepEvery
	var errs []error
	for i := range shards {
		sw := &shards[i]
		idle, err := w.lookAfter(ctx, sw)
		errs = append(errs, err)
		switch {
		case len(sw.Due) < sweepMost:
		case idle < sweepMost:
			wait = 0
		default:
			// Nothing had to be done: others come first.
			wait = min(wait, 2*time.Since(began))
		}
		if !sw.Next.IsZero() && len(sw.Due) < sweepMost {
			wait = min(wait, max(0, sw.Next.Sub(sw.Now)))
		}
	}
	return wait, errors.Join(errs...)
}

// look is a node that is due.
type look struct {
	entry store.Entry
	id    graph.ID
	ready store.Ready
	g     *graph.Graph
	d     delivery
}

// lookAfter does what is due in a shard, in few round trips for what is ordinary: nodes that wait in their
// queues, or whose time has come. It returns how many lines needed nothing.
func (w *Worker) lookAfter(ctx context.Context, sw *store.Swept) (idle int, err error) {
	var errs []error
	slow := func(en store.Entry) {
		left, err := w.attendOne(ctx, en)
		if left {
			idle++
		}
		errs = append(errs, err)
	}
	var nodes []store.Entry
	var looks []*look
	for _, en := range sw.Due {
		id, err := graph.ParseID(en.Node)
		if err != nil || strings.HasPrefix(en.Node, "!") {
			slow(en)
			continue
		}
		nodes, looks = append(nodes, en), append(looks, &look{entry: en, id: id})
	}
	ready, err := w.e.store.DueNow(ctx, nodes...)
	if err != nil {
		return idle, errors.Join(append(errs, err)...)
	}
	var moments []store.Moment
	var open []*look
	for i, l := range looks {
		l.ready = ready[i]
		switch {
		case l.ready.Err != nil:
			slow(l.entry)
		case l.ready.Status == "run" || l.ready.Status == "Q" || l.ready.Status == "W":
			open = append(open, l)
		case l.ready.Status == "wait":
		case strings.Contains("EPk", l.ready.Status):
			slow(l.entry)
		default: // gone, running or terminal
			moments = append(moments, store.Moment{Entry: l.entry})
		}
	}
	if err := w.graphsOf(ctx, open); err != nil {
		return idle, errors.Join(append(errs, err)...)
	}
	var send, waiting []*look
	for _, l := range open {
		switch {
		case l.g == nil || l.id.Index >= len(l.g.Nodes) || l.id.Inst < 0 && l.g.Virtual(l.id.Index):
			slow(l.entry)
			continue
		case l.ready.Status == "run":
			send = append(send, l)
		default:
			waiting = append(waiting, l)
		}
		l.d = newDelivery(&flow{Flow: l.entry.Flow}, l.g, l.id, l.ready.Epoch)
	}
	hold := max(holdThen, time.Duration(sw.Lines)*time.Second/looksPerSecond)
	refs := make([]store.TaskRef, len(waiting))
	for i, l := range waiting {
		refs[i] = store.TaskRef{Queue: l.d.queue, ID: l.d.id()}
	}
	states, err := w.e.store.QueueStates(ctx, refs)
	if err != nil {
		return idle, errors.Join(append(errs, err)...)
	}
	for i, l := range waiting {
		switch st := states[i]; {
		case st.State == "pending" && readable(&store.Popped{ID: l.d.id(), Message: st.Message}) == nil:
			moments = append(moments, store.Moment{Entry: l.entry, In: hold})
			idle++
		case st == store.QueueState{}:
			send = append(send, l)
		default:
			slow(l.entry)
		}
	}
	errs = append(errs, w.e.store.Rest(ctx, *sw, moments), w.handOver(ctx, send))
	return idle, errors.Join(errs...)
}

// attendOne does what is due for one line of the agenda, and reports whether it was left to others.
func (w *Worker) attendOne(ctx context.Context, en store.Entry) (left bool, err error) {
	err = w.e.attend(ctx, en)
	if errors.Is(err, errUnreadable) {
		var uerr error
		left, uerr = w.unreadable(ctx, en, err)
		err = errors.Join(err, uerr)
	}
	if err != nil {
		return left, fmt.Errorf("workflow %s node %s: %w", en.Flow.ID, en.Node, err)
	}
	return left, nil
}

// graphsOf gives nodes their graphs, where these can be read. Those that this process does not have are not
// kept: it may never run anything of theirs.
func (w *Worker) graphsOf(ctx context.Context, ls []*look) error {
	type key struct{ flow, scope string }
	var scopes []store.Scope
	of := map[key]*graph.Graph{}
	for _, l := range ls {
		k := key{l.entry.Flow.ID, l.id.Scope}
		if _, known := of[k]; known {
			continue
		}
		of[k] = w.e.kept(k.flow, k.scope)
		if of[k] == nil {
			scopes = append(scopes, store.Scope{Flow: l.entry.Flow, Name: k.scope})
		}
	}
	raws, err := w.e.store.Graphs(ctx, scopes)
	if err != nil {
		return err
	}
	for i, sc := range scopes {
		if raws[i] == nil {
			continue
		}
		if g, err := graph.Decode(raws[i]); err == nil {
			of[key{sc.Flow.ID, sc.Name}] = g
			if len(g.Nodes) > largeGraph {
				w.e.keep(sc.Flow.ID, sc.Name, g) // it is here for many nodes
			}
		}
	}
	for _, l := range ls {
		l.g = of[key{l.entry.Flow.ID, l.id.Scope}]
	}
	return nil
}

// handOver hands nodes to asynq.
func (w *Worker) handOver(ctx context.Context, ls []*look) error {
	if len(ls) == 0 {
		return nil
	}
	ds := make([]delivery, len(ls))
	at := make(map[string]*look, len(ls))
	for i, l := range ls {
		ds[i] = l.d
		at[l.d.id()] = l
	}
	had, err := w.e.queue.send(ctx, ds)
	if err != nil {
		return err
	}
	var errs []error
	for i := range had {
		id := had[i].id()
		_, err := w.attendOne(ctx, at[id].entry)
		errs = append(errs, err)
		delete(at, id)
	}
	flows := map[string][]delivery{}
	for id := range at {
		l := at[id]
		flows[l.entry.Flow.ID] = append(flows[l.entry.Flow.ID], l.d)
	}
	for _, ds := range flows {
		w.e.hold(ds[0].flow, ds, holdFirst)
	}
	return errors.Join(errs...)
}

// attend does what is due for one line of the agenda. Someone may have been faster: each step finds
// out by itself.
func (e *Engine) attend(ctx context.Context, en store.Entry) error {
	fl, err := e.load(ctx, en.Flow.ID)
	if errors.Is(err, ErrUnknown) {
		return e.store.Forget(ctx, en.Flow, en.Node)
	}
	if err != nil {
		if aborted, aerr := e.aborted(ctx, en.Flow); aerr == nil && aborted != nil {
			return e.store.Forget(ctx, en.Flow, en.Node)
		}
		return err
	}
	switch en.Node {
	case revokeNote:
		return e.finishRevoke(ctx, fl.ID)
	case progressNote:
		if err := e.project(ctx, fl); err != nil {
			return err
		}
		return e.store.Later(ctx, fl.Flow, progressNote, e.now().Add(keepAlive))
	}
	if failed, ok := strings.CutPrefix(en.Node, fastNote); ok {
		return e.failFast(ctx, fl, failed)
	}
	id, err := graph.ParseID(en.Node)
	if err != nil {
		return e.store.Forget(ctx, en.Flow, en.Node)
	}
	state, epoch, err := e.due(ctx, en)
	if err != nil {
		return err
	}
	g, err := e.graphOf(ctx, fl.Flow, id.Scope)
	if err != nil {
		return err
	}
	if id.Index >= len(g.Nodes) {
		return e.store.Forget(ctx, en.Flow, en.Node)
	}
	var m store.Moved
	switch state {
	case "run", "Q", "W":
		if id.Inst >= 0 || !g.Virtual(id.Index) {
			return e.deliverAgain(ctx, fl, g, id, newDelivery(fl, g, id, epoch))
		}
		m.Run = []string{en.Node}
	case "E":
		m.Run = []string{en.Node}
	case "P":
		m.Plans = []string{en.Node}
	case "k":
		m.Skips = []string{en.Node}
	case "wait":
		return nil
	default: // gone, running or terminal
		return e.store.Forget(ctx, fl.Flow, en.Node)
	}
	return e.settle(ctx, fl, m)
}

// deliverAgain hands a node to asynq unless asynq has it. One that was archived there has failed.
func (e *Engine) deliverAgain(ctx context.Context, fl *flow, g *graph.Graph, id graph.ID, d delivery) error {
	had, err := e.queue.send(ctx, []delivery{d})
	if err != nil {
		return err
	}
	hold := holdFirst
	if len(had) > 0 {
		at, why, err := e.whereabouts(ctx, d)
		if err != nil {
			return err
		}
		switch at {
		case putAway:
			return e.fail(ctx, fl, g, id, "", &Failure{Task: d.task, Node: d.node, Code: CodeArchived,
				Message: "its asynq task was archived: " + cmp.Or(why, "by an operator")})
		case gone:
			if _, err := e.queue.send(ctx, []delivery{d}); err != nil {
				return err
			}
		case taken:
			// The reply to the worker that took it may have been lost with its connection. If it was
			// not, that worker finds its delivery stale and drops it.
			if d.epoch, err = e.store.Reissue(ctx, fl.Flow, d.node, d.epoch); err != nil || d.epoch < 0 {
				return err
			}
			if _, err := e.queue.send(ctx, []delivery{d}); err != nil {
				return err
			}
		default:
			hold = holdThen
		}
	}
	e.hold(fl, []delivery{d}, hold)
	return nil
}

// due makes a node runnable if its time has come, and returns its state and epoch.
func (e *Engine) due(ctx context.Context, en store.Entry) (state string, epoch int, err error) {
	ready, err := e.store.DueNow(ctx, en)
	if err != nil {
		return "", 0, err
	}
	return ready[0].Status, ready[0].Epoch, ready[0].Err
}
