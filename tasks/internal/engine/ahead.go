package engine

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"time"

	"muster/tasks/internal/graph"
	"muster/tasks/internal/store"
)

// begun is a node that Redis knows this worker runs, before a slot is at it.
type begun struct {
	store.Begun
	value []byte // its input, if that is known here
	bad   error  // why the workflow cannot be read
}

// upcoming is a node for a slot. With begun it needs no begin.
type upcoming struct {
	node  string
	epoch int
	begun *begun
}

// aheadTimeout bounds the call that begins what was taken together; each slot can begin by itself.
const aheadTimeout = 10 * time.Second

// beginAhead begins what was taken out of a queue, all in one round trip. Should this process die, they
// are found among the nodes of a silent worker.
func (w *Worker) beginAhead(got []store.Popped) {
	ctx, cancel := context.WithTimeout(context.Background(), aheadTimeout)
	defer cancel()
	type item struct {
		task, flow, node string
		epoch            int
		scopes           []string
		call             *store.Call
	}
	var items []item
	var calls []*store.Call
	asked := map[string]bool{}
	for _, p := range got {
		wfID, node, epoch, err := parseDelivery(p.ID)
		if err != nil {
			continue
		}
		id, err := graph.ParseID(node)
		if err != nil {
			continue
		}
		f, err := w.e.store.Flow(ctx, wfID)
		if err != nil || !w.claim(wfID, node, epoch) {
			continue
		}
		it := item{task: p.ID, flow: wfID, node: node, epoch: epoch, scopes: w.unknown(wfID, id.Scope, asked)}
		fields := make([]string, len(it.scopes))
		for i, s := range it.scopes {
			fields[i] = store.GraphField(s)
		}
		it.call = w.e.store.BeginCall(f, node, epoch, w.cfg.Name, fields)
		items, calls = append(items, it), append(calls, it.call)
	}
	if len(calls) == 0 {
		return
	}
	err := w.e.store.Scripts().Do(ctx, calls...)
	for _, it := range items {
		var b store.Begun
		if err == nil {
			b, err = store.BegunBy(it.call)
		}
		if err != nil {
			w.unclaim(it.flow, it.node, it.epoch)
			continue
		}
		w.mu.Lock()
		w.ahead[it.task] = &begun{Begun: b, bad: w.learnAll(it.flow, it.scopes, b)}
		w.mu.Unlock()
	}
}

// unknown returns the scopes of a node whose graphs this process does not have, and that were not asked
// for already.
func (w *Worker) unknown(wfID, scope string, asked map[string]bool) []string {
	var out []string
	for _, s := range []string{"", scope} {
		if key := wfID + "/" + s; w.e.kept(wfID, s) == nil && !asked[key] {
			if asked != nil {
				asked[key] = true
			}
			out = append(out, s)
		}
		if scope == "" {
			break
		}
	}
	return out
}

func (w *Worker) learnAll(wfID string, scopes []string, b store.Begun) error {
	if b.Status != "run" {
		return nil
	}
	for i, s := range scopes {
		if _, err := w.e.learn(wfID, s, b.Graphs[i], true); err != nil {
			return err
		}
	}
	return nil
}

// startAhead returns what is known of a delivery that was begun ahead, or nil.
func (w *Worker) startAhead(task string) *begun {
	w.mu.Lock()
	defer w.mu.Unlock()
	b := w.ahead[task]
	delete(w.ahead, task)
	return b
}

// leaveOut has nodes of a workflow not start that were begun ahead and are revoked: those that are listed,
// or all.
func (w *Worker) leaveOut(workflow string, nodes []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for task, b := range w.ahead {
		wfID, node, _, err := parseDelivery(task)
		if err == nil && wfID == workflow && (nodes == nil || slices.Contains(nodes, node)) {
			b.Status = "done"
		}
	}
}

// giveBack gives back what was taken out of a queue and has not started.
func (w *Worker) giveBack(queue string, keys store.QueueKeys, ps []store.Popped) {
	ctx, cancel := context.WithTimeout(context.Background(), aheadTimeout)
	defer cancel()
	ids := make([]string, len(ps))
	for i, p := range ps {
		ids[i] = p.ID
	}
	// Those that have begun are handed over once more, and what is given back of them here is stale.
	if err := w.e.store.GiveBack(ctx, queue, keys, ids); err != nil {
		w.log.Warn("tasks that have not started are left to the agenda", "queue", queue, "error", err)
	}
	for _, p := range ps {
		b := w.startAhead(p.ID)
		if b == nil {
			continue
		}
		wfID, node, epoch, err := parseDelivery(p.ID)
		if err != nil {
			continue
		}
		if b.Status == "run" {
			if err := w.putBack(ctx, wfID, node, epoch); err != nil {
				w.log.Warn("node that has not started is left to others", "workflow", wfID, "node", node, "error", err)
			}
		}
		w.unclaim(wfID, node, epoch)
	}
}

// putBack makes a node runnable again that this worker has begun and not run.
func (w *Worker) putBack(ctx context.Context, wfID, node string, epoch int) error {
	fl, err := w.e.load(ctx, wfID)
	if errors.Is(err, ErrUnknown) {
		return nil
	}
	if err != nil {
		return err
	}
	id, err := graph.ParseID(node)
	if err != nil {
		return err
	}
	g, err := w.e.graphAt(ctx, fl.Flow, id)
	if err != nil {
		return err
	}
	r, err := w.e.store.Repeat(ctx, fl.Flow, node, strconv.Itoa(epoch), w.cfg.Name, 0, store.RepeatAgain, "", mostLost)
	if err != nil || r.Status != "ok" {
		return err
	}
	return w.e.deliver(ctx, fl, []delivery{newDelivery(fl, g, id, r.Epoch)})
}

// takes says which of the nodes that r makes ready this worker may begin in the same step. Until follow
// they count as claimed, though several slots may try for one.
func (w *Worker) takes(r *Run) store.Take {
	if !r.onward || w.seam.stopped() || r.id.Inst >= 0 {
		return store.Take{}
	}
	var t store.Take
	for _, e := range r.g.Succs(r.id.Index) {
		n := &r.g.Nodes[e.To]
		// One with a literal input has that in Redis, and catches and joins have their own ways.
		if n.Kind != graph.Task || n.In == 0 || e.Kind != graph.Need || e.Inst != -1 {
			continue
		}
		sp := &r.g.Specs[n.Spec]
		if sp.QueueName() == r.Info.Queue && sp.Priority == r.Info.Priority && w.handlers[sp.Task] != nil {
			t.Nodes = append(t.Nodes, r.id.At(e.To, -1).String())
		}
	}
	if len(t.Nodes) == 0 {
		return t
	}
	t.Worker = w.cfg.Name
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, n := range t.Nodes {
		w.tried[claimKey(r.Info.Workflow, n, 0)]++
	}
	return t
}

// follow says what this slot runs next, after r came to a value.
func (w *Worker) follow(r *Run, m store.Moved, t store.Take, value []byte, err error) {
	w.mu.Lock()
	for _, n := range t.Nodes {
		key := claimKey(r.Info.Workflow, n, 0)
		if err == nil && n == m.Taken {
			w.mine[key] = true
		}
		if w.tried[key]--; w.tried[key] == 0 {
			delete(w.tried, key)
		}
	}
	w.mu.Unlock()
	if err != nil {
		return
	}
	if m.Taken != "" {
		b := &begun{Begun: store.Begun{Status: "run", Now: m.Now}}
		if id, err := graph.ParseID(m.Taken); err == nil && r.g.Nodes[id.Index].In == r.id.Index+1 {
			b.value = value
		}
		r.next = append(r.next, upcoming{node: m.Taken, begun: b})
		return
	}
	if m.Status[0] != "ok" {
		// It was done before: the answer may have got lost, and with it what this worker began.
		for _, n := range t.Nodes {
			r.next = append(r.next, upcoming{node: n})
		}
	}
}
