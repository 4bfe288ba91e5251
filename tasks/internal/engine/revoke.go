package engine

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	"muster/tasks/internal/graph"
	"muster/tasks/internal/store"
	"muster/tasks/tasktype"
)

// Operator stops, pauses and retries workflows, and stops nodes.
type Operator struct{ *advancer }

// revokeFor is how long a handler may take to stop its own workflow.
const revokeFor = 10 * time.Second

// Revoke stops the workflow with a reference or id. A handler may stop its own workflow, which cancels ctx before Revoke
// has returned.
func (r *Operator) Revoke(ctx context.Context, refOrID string) error {
	f, err := r.store.Flows.Address(ctx, refOrID)
	if err != nil {
		return err
	}
	ctx, cancel, err := fromOutside(ctx, f)
	if err != nil {
		return err
	}
	defer cancel()
	running, err := r.store.Leases.OfFlow(ctx, f) // before its workers stop the nodes
	if err != nil {
		return err
	}
	switch state, err := r.store.Flows.Stop(ctx, f, store.OpRevoke); {
	case err != nil || state == store.StopEnded:
		return err
	case state == store.StopUnknown:
		return ErrUnknown
	}
	return r.advancer.finishRevoke(ctx, f.Ref, running)
}

// fromOutside returns a context in which a workflow can be stopped: in a handler of the workflow one that does not end with that.
func fromOutside(ctx context.Context, f store.Flow) (context.Context, context.CancelFunc, error) {
	if run := RunFrom(ctx); run == nil || run.fl.Ref != f.Ref {
		return ctx, func() {}, nil
	}
	if err := ctx.Err(); err != nil {
		return nil, nil, err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), revokeFor)
	return ctx, cancel, nil
}

// Forget deletes the workflow with a reference or id, which must have ended.
func (r *Operator) Forget(ctx context.Context, refOrID string) error {
	f, err := r.store.Flows.Address(ctx, refOrID)
	if err != nil {
		return err
	}
	return r.stop(ctx, f, store.OpDrop)
}

// Node stops one node and, if it runs, its handler.
func (r *Operator) Node(ctx context.Context, id, node string) error {
	fl, nid, _, err := r.graphs.existing(ctx, id, node)
	if err != nil {
		return err
	}
	return r.advancer.stopNodes(ctx, fl, []graph.ID{nid}, "")
}

// finishRevoke makes all nodes of a revoked workflow terminal. before has the leases from before it was revoked, if they are known.
func (a *advancer) finishRevoke(ctx context.Context, ref string, before map[string]*store.NodeLease) error {
	all, err := a.graphs.whole(ctx, ref)
	if err != nil {
		return err
	}
	fl, ids := all.flow, all.ids
	running, err := a.store.Leases.OfFlow(ctx, fl.Flow) // before their workers stop them
	if err != nil {
		return err
	}
	for node, l := range before {
		if running[node] == nil {
			running[node] = l
		}
	}
	if err := a.store.Tell(ctx, fl.Shard(), "x "+ref); err != nil {
		return fmt.Errorf("tell workers: %w", err)
	}
	if err := a.store.Flows.DropPlaces(ctx, fl.Flow, all.fields); err != nil {
		return fmt.Errorf("drop places: %w", err)
	}
	if err := a.store.Flows.Withdraw(ctx, fl.Flow, firstSpan(fl.g), all.lanes()); err != nil {
		return err
	}
	// The last nodes first: nodes of a plan before the planned node, members before their map.
	slices.Reverse(ids)
	if err := a.revokeNodes(ctx, fl, ids, running, ""); err != nil {
		return err
	}
	return a.store.Agenda.Remove(ctx, fl.Flow, revokeNote)
}

// The entries of the agenda that are not for a node.
const (
	revokeNote   = "!revoke"
	cancelNote   = "!cancel"
	deadlineNote = "!deadline"
	progressNote = "!progress"
	orderNote    = "!order"
	fastNote     = "!fast " // followed by the node that failed
)

// revokeNodes revokes nodes. The nodes that need them are skipped; the cause they name is the node failed or, if that is empty, the revoked node.
func (a *advancer) revokeNodes(ctx context.Context, fl *flow, ids []graph.ID, running map[string]*store.NodeLease, failed string) error {
	flags := []string{store.FlagPlanned}
	if failed != "" {
		flags = append(flags, store.FlagCause+failed)
	}
	return a.endNodes(ctx, fl, ids, running, store.ChangeRevoke, tasktype.CodeRevoked, "revoked", flags...)
}

// endNodes makes nodes terminal that have not ended, and takes the steps that follow. Those with the leases running keep their attempt, worker and start.
func (a *advancer) endNodes(ctx context.Context, fl *flow, ids []graph.ID, running map[string]*store.NodeLease, outcome, code, message string, flags ...string) error {
	v := a.graphs.values(fl)
	for part := range slices.Chunk(ids, changesAtOnce) {
		changes := make([]store.Change, 0, len(part))
		for _, id := range part {
			g, err := v.graph(ctx, id)
			if err != nil {
				return err
			}
			c := end(g, id, outcome)
			head := "?"
			if b := running[id.String()]; b != nil {
				head = fmt.Sprintf("!%d|%s|", max(0, b.Taken.UnixMilli()-fl.Created), b.Worker)
			}
			c.End(id.String(), append([]byte(head), encodeFailure(&tasktype.Failure{Task: title(g, id), Node: id.String(), Code: code, Message: message})...))
			c.Queue = counted(g, id)
			c.Flags = slices.DeleteFunc(c.Flags, func(flag string) bool { return flag == store.FlagFailFast }) // the siblings are ended, too
			c.Flags = append(append(c.Flags, store.FlagClear), flags...)
			changes = append(changes, c)
		}
		t, err := a.apply(ctx, fl, changes)
		if err != nil {
			return err
		}
		if err := a.settle(ctx, fl, t); err != nil {
			return err
		}
	}
	return nil
}

// stopNodes revokes nodes, the members of maps among them, and the nodes of their plans. Terminal nodes get no new
// members or plans, so each round finds all there are. failed is as in revokeNodes.
func (a *advancer) stopNodes(ctx context.Context, fl *flow, ids []graph.ID, failed string) error {
	for len(ids) > 0 {
		slices.Reverse(ids) // the last first: else they would be skipped instead of revoked
		running, err := a.store.Leases.OfFlow(ctx, fl.Flow)
		if err != nil {
			return err
		}
		if err := a.revokeNodes(ctx, fl, ids, running, failed); err != nil {
			return err
		}
		if err := a.store.Tell(ctx, fl.Shard(), "x "+fl.Ref); err != nil {
			return fmt.Errorf("tell workers: %w", err)
		}
		if ids, err = a.below(ctx, fl, ids); err != nil {
			return err
		}
	}
	return nil
}

// below returns the members of the maps and the nodes of the plans among ids.
func (a *advancer) below(ctx context.Context, fl *flow, ids []graph.ID) ([]graph.ID, error) {
	names := make([]string, 0, 2*len(ids))
	for _, id := range ids {
		names = append(names, store.FieldMembersOf+id.String(), store.FieldGraph+id.String())
	}
	fields, err := a.store.Flows.Fields(ctx, fl.Flow, names...)
	if err != nil {
		return nil, err
	}
	var out []graph.ID
	for _, id := range ids {
		if members, ok := fields[store.FieldMembersOf+id.String()]; ok {
			m, err := strconv.Atoi(members)
			if err != nil {
				return nil, fmt.Errorf("workflow %s %w: members of map %s: %w", fl.ID(), errUnreadable, id, err)
			}
			for k := range m {
				out = append(out, id.At(id.Index, k))
			}
		}
		if fields[store.FieldGraph+id.String()] == "" {
			continue
		}
		g, err := a.graphs.of(ctx, fl.Flow, id.String())
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
func (a *advancer) failFast(ctx context.Context, fl *flow, node string) error {
	id, g, err := a.graphs.values(fl).named(ctx, node)
	if err != nil {
		return err
	}
	var ids []graph.ID
	n := &g.Nodes[id.Index]
	if id.Inst >= 0 && n.Kind == graph.Each && n.FailFast {
		m, err := a.graphs.values(fl).members(ctx, id.At(id.Index, -1).String())
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
	if err := a.stopNodes(ctx, fl, ids, node); err != nil {
		return err
	}
	return a.store.Agenda.Remove(ctx, fl.Flow, fastNote+node)
}

// firstSpan returns the span of the first nodes of a workflow, or "" if they are not one span.
func firstSpan(g *graph.Graph) string {
	if roots := releases(g, graph.ID{Inst: -1}); len(roots) == 1 {
		return roots[0].Span
	}
	return ""
}

// Pause pauses the workflow with a reference or id: workers take no more of its nodes. With pause false, it resumes it.
func (r *Operator) Pause(ctx context.Context, refOrID string, pause bool) error {
	f, err := r.store.Flows.Address(ctx, refOrID)
	if err != nil {
		return err
	}
	if pause {
		return r.stop(ctx, f, store.OpPause)
	}
	if err := r.stop(ctx, f, store.OpResume); err != nil {
		return err
	}
	return r.advancer.orderNext(ctx, f.Ref) // it may have been paused while it waited for another workflow
}
