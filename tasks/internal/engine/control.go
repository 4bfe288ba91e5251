package engine

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"muster/tasks/internal/graph"
	"muster/tasks/internal/store"
	"muster/tasks/tasktype"
)

// Revoke stops a workflow.
func (e *Engine) Revoke(ctx context.Context, id string) error {
	f, err := e.store.Flows.Address(ctx, id)
	if err != nil {
		return err
	}
	ended, err := e.store.Flows.Revoke(ctx, f)
	if err != nil || ended {
		return err
	}
	return e.finishRevoke(ctx, id)
}

// Forget deletes a workflow that has ended.
func (e *Engine) Forget(ctx context.Context, id string) error {
	f, err := e.store.Flows.Address(ctx, id)
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
	return e.store.Flows.Drop(ctx, f)
}

// finishRevoke makes all nodes of a revoked workflow terminal.
func (e *Engine) finishRevoke(ctx context.Context, id string) error {
	all, err := e.all(ctx, id)
	if err != nil {
		return err
	}
	fl, ids := all.flow, all.ids
	if err := e.store.Tell(ctx, "x "+id); err != nil {
		return fmt.Errorf("tell workers: %w", err)
	}
	var groups []string
	for _, nid := range ids {
		if all.graph(nid).Nodes[nid.Index].AtMost > 0 && nid.Inst < 0 {
			groups = append(groups, nid.String())
		}
	}
	lanes := map[string]bool{}
	for scope, g := range all.graphs {
		for i := range g.Specs {
			lanes[store.Lane(g.Specs[i].QueueName(), g.Specs[i].Priority)] = true
		}
		for i := range g.Nodes {
			if g.Nodes[i].AtMost > 0 && g.Passive(i) {
				groups = append(groups, graph.ID{Scope: scope, Index: i, Inst: -1}.String())
			}
		}
	}
	if err := e.store.Flows.DropPlaces(ctx, fl.Flow, groups); err != nil {
		return fmt.Errorf("drop places: %w", err)
	}
	first := ""
	if roots := releases(fl.g, graph.ID{Inst: -1}); len(roots) == 1 {
		first = roots[0].Span
	}
	unneeded, err := e.store.Flows.Withdraw(ctx, fl.Flow, first, slices.Sorted(maps.Keys(lanes)))
	if err != nil {
		return err
	}
	e.unwake(unneeded)
	// The last nodes first: what is planned before what planned it, members before their map.
	slices.Reverse(ids)
	if err := e.revokeNodes(ctx, fl, ids, ""); err != nil {
		return err
	}
	return e.store.Agenda.Remove(ctx, fl.Flow, revokeNote)
}

// The entries of the agenda that are not for a node.
const (
	revokeNote   = "!revoke"
	progressNote = "!progress"
	fastNote     = "!fast " // followed by the node that failed
)

// revokeNodes makes nodes terminal. The nodes that need them are skipped; the cause they name is the node failed or, if
// that is empty, the revoked node.
func (e *Engine) revokeNodes(ctx context.Context, fl *flow, ids []graph.ID, failed string) error {
	for part := range slices.Chunk(ids, changesAtOnce) {
		changes := make([]store.Change, 0, len(part))
		for _, id := range part {
			g, err := e.graphAt(ctx, fl.Flow, id)
			if err != nil {
				return err
			}
			c := ended(g, id, "X", encodeFailure(&tasktype.Failure{
				Task: title(g, id), Node: id.String(), Code: tasktype.CodeRevoked, Message: "revoked"}))
			c.Flags += "pd"
			if failed != "" {
				c.Flags += ">" + failed
			}
			changes = append(changes, c)
		}
		t, err := e.advance(ctx, fl, changes)
		if err != nil {
			return err
		}
		if err := e.settle(ctx, fl, t); err != nil {
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

// stopNodes revokes nodes, the members of maps among them, and the nodes of their plans. Terminal nodes get no new
// members or plans, so each round finds all there are. failed is as in revokeNodes.
func (e *Engine) stopNodes(ctx context.Context, fl *flow, ids []graph.ID, failed string) error {
	for len(ids) > 0 {
		slices.Reverse(ids) // the last first: else they would be skipped instead of revoked
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
	raws, err := e.store.Flows.Fields(ctx, fl.Flow, fields)
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

// failFast revokes the siblings of a node that failed, in groups with FailFast. The agenda has an entry for this until
// it is done.
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
	return e.store.Agenda.Remove(ctx, fl.Flow, fastNote+node)
}

// PauseQueue stops workers from taking from a queue.
func (e *Engine) PauseQueue(ctx context.Context, queue string) error {
	return e.store.Queues.Pause(ctx, queue)
}

// ResumeQueue undoes PauseQueue.
func (e *Engine) ResumeQueue(ctx context.Context, queue string) error {
	if err := e.store.Queues.Resume(ctx, queue); err != nil {
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

// ExpireWorkers makes the nodes of the named workers, which are dead, ready again.
func (e *Engine) ExpireWorkers(ctx context.Context, workers []string) error {
	var errs []error
	for _, name := range workers {
		_, wants, err := e.store.Batches.Reap(ctx, name, true)
		e.wake(ctx, wants)
		errs = append(errs, err, e.store.Workers.Bye(ctx, name))
	}
	return errors.Join(append(errs, e.rouse(ctx))...)
}

// rouse sends wake-tasks at once for ready nodes whose wake-task a dead worker may have had.
func (e *Engine) rouse(ctx context.Context) error {
	queues, err := e.queues(ctx)
	if err != nil || len(queues) == 0 {
		return err
	}
	return e.look(ctx, 0, "", queues)
}

// leave signs off a worker that has stopped. The batches it still has, when it was killed, are returned.
func (e *Engine) leave(ctx context.Context, worker string) error {
	if err := e.store.Workers.Bye(ctx, worker); err != nil {
		return err
	}
	_, wants, err := e.store.Batches.Reap(ctx, worker, false)
	e.wake(ctx, wants)
	return err
}
