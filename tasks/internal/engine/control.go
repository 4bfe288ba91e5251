package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/hibiken/asynq"

	"muster/tasks/internal/graph"
	"muster/tasks/internal/store"
)

// Revoke stops a workflow.
func (e *Engine) Revoke(ctx context.Context, id string) error {
	f, err := e.store.Flow(ctx, id)
	if err != nil {
		return err
	}
	ended, err := e.store.Revoke(ctx, f)
	if err != nil || ended {
		return err
	}
	return e.finishRevoke(ctx, id)
}

// Forget deletes a workflow that has ended.
func (e *Engine) Forget(ctx context.Context, id string) error {
	f, err := e.store.Flow(ctx, id)
	if err != nil {
		return err
	}
	p, err := e.Progress(ctx, id)
	if err != nil {
		return err
	}
	if !p.Ended {
		return errors.New("it has not ended; revoke it first")
	}
	return e.store.Drop(ctx, f)
}

// finishRevoke makes all nodes of a revoked workflow terminal.
func (e *Engine) finishRevoke(ctx context.Context, id string) error {
	fl, fields, ids, err := e.all(ctx, id)
	if err != nil {
		return err
	}
	if err := e.store.Tell(ctx, "x "+id); err != nil {
		return fmt.Errorf("tell workers: %w", err)
	}
	var groups []string
	for _, nid := range ids {
		if g, err := e.graphAt(ctx, fl.Flow, nid); err == nil && g.Nodes[nid.Index].AtMost > 0 && nid.Inst < 0 {
			groups = append(groups, nid.String())
		}
	}
	for scope := range scopes(fields) {
		g, err := e.graphOf(ctx, fl.Flow, scope)
		if err != nil {
			return err
		}
		for i := range g.Nodes {
			if g.Nodes[i].AtMost > 0 && g.Passive(i) {
				groups = append(groups, graph.ID{Scope: scope, Index: i, Inst: -1}.String())
			}
		}
	}
	if err := e.store.DropPlaces(ctx, fl.Flow, groups); err != nil {
		return fmt.Errorf("drop places: %w", err)
	}
	// The last nodes first: what is planned before what planned it, members before their map.
	slices.Reverse(ids)
	if err := e.revokeNodes(ctx, fl, ids, ""); err != nil {
		return err
	}
	return e.store.Forget(ctx, fl.Flow, revokeNote)
}

func scopes(fields map[string]string) map[string]bool {
	out := map[string]bool{}
	for f := range fields {
		if s, ok := strings.CutPrefix(f, "g"); ok {
			out[s] = true
		}
	}
	return out
}

// The notes in the agenda that are no nodes.
const (
	revokeNote   = "!revoke"
	progressNote = "!progress"
	fastNote     = "!fast " // and the node that failed
)

// revokeNodes makes nodes terminal. What needs them is skipped because of the node that failed, or
// because of themselves if none did.
func (e *Engine) revokeNodes(ctx context.Context, fl *flow, ids []graph.ID, failed string) error {
	for part := range slices.Chunk(ids, opsAtOnce) {
		ops := make([]store.Op, 0, len(part))
		for _, id := range part {
			g, err := e.graphAt(ctx, fl.Flow, id)
			if err != nil {
				return err
			}
			o := op(g, id, "X", "", encodeFailure(&Failure{
				Task: title(g, id), Node: id.String(), Code: CodeRevoked, Message: "revoked"}))
			o.Flags += "p"
			if failed != "" {
				o.Flags += ">" + failed
			}
			ops = append(ops, o)
		}
		m, err := e.store.Advance(ctx, fl.Flow, ops, store.Take{})
		if err != nil {
			return err
		}
		if err := e.settle(ctx, fl, m); err != nil {
			return err
		}
	}
	return nil
}

// RevokeNode stops one node and, if it runs, its handler.
func (e *Engine) RevokeNode(ctx context.Context, id, node string) error {
	fl, err := e.load(ctx, id)
	if err != nil {
		return err
	}
	nid, err := graph.ParseID(node)
	if err != nil {
		return err
	}
	g, err := e.graphOf(ctx, fl.Flow, nid.Scope)
	if err != nil {
		return err
	}
	if nid.Index >= len(g.Nodes) || g.Passive(nid.Index) {
		return fmt.Errorf("the workflow has no node %s", node)
	}
	return e.stopNodes(ctx, fl, []graph.ID{nid}, "")
}

// stopNodes revokes nodes with all that runs for them: members of maps, and plans. What is terminal
// gets no more of those, so each round finds all. failed is as in revokeNodes.
func (e *Engine) stopNodes(ctx context.Context, fl *flow, ids []graph.ID, failed string) error {
	for len(ids) > 0 {
		slices.Reverse(ids) // what comes last first: it is revoked, not skipped
		if err := e.revokeNodes(ctx, fl, ids, failed); err != nil {
			return err
		}
		for part := range slices.Chunk(ids, 500) {
			names := make([]string, len(part))
			for i, id := range part {
				names[i] = id.String()
			}
			if err := e.store.Tell(ctx, "n "+fl.ID+" "+strings.Join(names, ",")); err != nil {
				return fmt.Errorf("tell workers: %w", err)
			}
		}
		var err error
		if ids, err = e.below(ctx, fl, ids); err != nil {
			return err
		}
	}
	return nil
}

// below returns the members of the maps and the nodes of the plans among ids.
func (e *Engine) below(ctx context.Context, fl *flow, ids []graph.ID) ([]graph.ID, error) {
	fields := make([]string, 0, 2*len(ids))
	for _, id := range ids {
		fields = append(fields, "m"+id.String(), store.GraphField(id.String()))
	}
	raws, err := e.store.Fields(ctx, fl.Flow, fields)
	if err != nil {
		return nil, err
	}
	var out []graph.ID
	for i, id := range ids {
		if raws[2*i] != nil {
			m, err := strconv.Atoi(string(raws[2*i]))
			if err != nil {
				return nil, fmt.Errorf("members of map %s: %w", id, err)
			}
			for k := range m {
				out = append(out, id.At(id.Index, k))
			}
		}
		if raws[2*i+1] == nil {
			continue
		}
		g, err := e.graphOf(ctx, fl.Flow, id.String())
		if err != nil {
			return nil, err
		}
		for k := range g.Nodes {
			if !g.Passive(k) && g.Nodes[k].Kind != graph.Catch {
				out = append(out, graph.ID{Scope: id.String(), Index: k, Inst: -1})
			}
		}
	}
	return out, nil
}

// failFast revokes the siblings of a node that failed, where its group asks for that. The agenda
// holds a note of it until that is done.
func (e *Engine) failFast(ctx context.Context, fl *flow, node string) error {
	id, err := graph.ParseID(node)
	if err != nil {
		return err
	}
	g, err := e.graphAt(ctx, fl.Flow, id)
	if err != nil {
		return err
	}
	var ids []graph.ID
	n := &g.Nodes[id.Index]
	if id.Inst >= 0 && n.Kind == graph.Each && n.FailFast {
		m, err := e.newValues(fl).members(ctx, id.At(id.Index, -1).String())
		if err != nil {
			return err
		}
		for i := range m {
			if i != id.Inst {
				ids = append(ids, id.At(id.Index, i))
			}
		}
	}
	if id.Inst < 0 || n.Kind == graph.Each {
		for _, i := range g.Doomers(id.Index) {
			ids = append(ids, id.At(i, -1))
		}
	}
	if err := e.stopNodes(ctx, fl, ids, node); err != nil {
		return err
	}
	return e.store.Forget(ctx, fl.Flow, fastNote+node)
}

// PauseQueue stops workers from taking from a queue.
func (e *Engine) PauseQueue(ctx context.Context, queue string) error {
	return e.store.Pause(ctx, queue)
}

// ResumeQueue undoes PauseQueue.
func (e *Engine) ResumeQueue(ctx context.Context, queue string) error {
	if err := e.store.Resume(ctx, queue); err != nil {
		return err
	}
	return e.store.Tell(ctx, "q "+queue)
}

// SetConcurrency tells the live workers with a name, or all, how many tasks to run at once.
func (e *Engine) SetConcurrency(ctx context.Context, worker string, n int) error {
	live, err := e.Workers(ctx)
	if err != nil {
		return err
	}
	var names []string
	heard := false
	for _, w := range live {
		names = append(names, w.Name)
		if worker != "" && worker != w.Name {
			continue
		}
		heard = true
		if w.MaxConcurrency > 0 && n > w.MaxConcurrency {
			return fmt.Errorf("worker %s runs at most %d tasks at once (its MaxConcurrency)", w.Name, w.MaxConcurrency)
		}
	}
	switch {
	case len(live) == 0:
		return errors.New("no worker is up")
	case !heard:
		return fmt.Errorf("no worker is called %q; there are %s", worker, strings.Join(names, ", "))
	}
	if worker == "" {
		worker = "*"
	}
	if err := e.store.Tell(ctx, "c "+worker+" "+strconv.Itoa(n)); err != nil {
		return fmt.Errorf("tell workers: %w", err)
	}
	return nil
}

// ExpireWorkers makes runnable again what the named workers were running.
func (e *Engine) ExpireWorkers(ctx context.Context, workers []string) error {
	for _, w := range workers {
		if err := e.store.Bye(ctx, w); err != nil {
			return err
		}
	}
	holders, err := e.store.Running(ctx)
	if err != nil {
		return err
	}
	var errs []error
	for _, h := range holders {
		if slices.Contains(workers, h.Worker) {
			errs = append(errs, e.lost(ctx, h, ""))
		}
	}
	return errors.Join(append(errs, e.takeBack(ctx))...)
}

// takeBack makes runnable again what a dead worker took from a queue and did not get to begin. Which
// worker took a task is written nowhere: a live one that is about to begin it finds it stale, and
// drops it.
func (e *Engine) takeBack(ctx context.Context) error {
	holders, err := e.store.Running(ctx)
	if err != nil {
		return err
	}
	runs := make(map[string]bool, len(holders))
	for _, h := range holders {
		runs[h.Flow.ID+"/"+h.Node] = true
	}
	in := asynq.NewInspectorFromRedisClient(e.store.Redis())
	queues, err := in.Queues()
	if err != nil {
		return fmt.Errorf("list queues: %w", err)
	}
	var errs []error
	for _, q := range queues {
		for page := 1; ; page++ {
			const size = 1000
			active, err := in.ListActiveTasks(q, asynq.PageSize(size), asynq.Page(page))
			if err != nil {
				errs = append(errs, fmt.Errorf("list active tasks of queue %s: %w", q, err))
				break
			}
			for _, t := range active {
				if wf, node, epoch, err := parseDelivery(t.ID); err == nil && !runs[wf+"/"+node] {
					errs = append(errs, e.reissue(ctx, wf, node, epoch))
				}
			}
			if len(active) < size {
				break
			}
		}
	}
	return errors.Join(errs...)
}

// reissue hands a node over once more under a new epoch, unless it has begun.
func (e *Engine) reissue(ctx context.Context, wf, node string, epoch int) error {
	f, err := e.store.Flow(ctx, wf)
	if err != nil {
		return err
	}
	if epoch, err = e.store.Reissue(ctx, f, node, epoch); err != nil || epoch < 0 {
		return err
	}
	fl, err := e.load(ctx, wf)
	if err != nil {
		return err
	}
	id, err := graph.ParseID(node)
	if err != nil {
		return err
	}
	g, err := e.graphAt(ctx, f, id)
	if err != nil {
		return err
	}
	return e.deliver(ctx, fl, []delivery{newDelivery(fl, g, id, epoch)})
}

// mostLost is how many workers a node may take with it.
const mostLost = 10

// lost makes a node runnable again whose worker died, if it runs under an epoch; "" for any.
func (e *Engine) lost(ctx context.Context, h store.Holder, epoch string) error {
	fl, err := e.load(ctx, h.Flow.ID)
	if errors.Is(err, ErrUnknown) {
		return e.store.DropRunning(ctx, h)
	}
	if errors.Is(err, errUnreadable) {
		// Who can read it finds it in the agenda, and what is poison where it is.
		_, rerr := e.store.Repeat(ctx, h.Flow, h.Node, epoch, h.Worker, time.Millisecond, store.RepeatLost, "its worker died", mostLost)
		return errors.Join(err, rerr)
	}
	if err != nil {
		return err
	}
	id, err := graph.ParseID(h.Node)
	if err != nil {
		return err
	}
	g, err := e.graphAt(ctx, fl.Flow, id)
	if err != nil {
		return err
	}
	r, err := e.store.Repeat(ctx, fl.Flow, h.Node, epoch, h.Worker, 0, store.RepeatDied, "its worker died", mostLost)
	if err != nil {
		return err
	}
	switch r.Status {
	case "ok":
		d := newDelivery(fl, g, id, r.Epoch)
		return e.deliver(ctx, fl, []delivery{d})
	case "poison":
		return e.fail(ctx, fl, g, id, strconv.Itoa(r.Epoch), &Failure{Task: title(g, id), Node: h.Node, Attempts: mostLost + 1,
			Code: CodeLost, Message: fmt.Sprintf("its worker died %d times", mostLost+1)})
	}
	rec, err := e.newValues(fl).record(ctx, h.Node)
	if err == nil && rec.State != 'R' {
		return e.store.DropRunning(ctx, h)
	}
	return err
}

// fail ends a node with a failure. The attempts of f include the one that failed.
func (e *Engine) fail(ctx context.Context, fl *flow, g *graph.Graph, id graph.ID, epoch string, f *Failure) error {
	outcome := "F"
	if f.Code == CodeExpired || f.Code == CodeRevoked {
		outcome = "X"
	}
	o := op(g, id, outcome, epoch, encodeFailure(f))
	if f.Code == CodeExpired && g.FailsFast() {
		o.Flags += "f"
	}
	m, err := e.store.Advance(ctx, fl.Flow, []store.Op{o}, store.Take{})
	if err != nil {
		return err
	}
	return e.settle(ctx, fl, m)
}
