package engine

import (
	"context"
	"errors"
	"fmt"

	"muster/tasks/internal/graph"
)

// Revoker stops workflows and nodes.
type Revoker struct {
	*env
	graphs   *graphs
	progress *progress
	advancer *advancer
}

// Revoke stops a workflow.
func (r *Revoker) Revoke(ctx context.Context, id string) error {
	f, err := r.store.Flows.Address(ctx, id)
	if err != nil {
		return err
	}
	ended, err := r.store.Flows.Revoke(ctx, f)
	if err != nil || ended {
		return err
	}
	return r.advancer.finishRevoke(ctx, id)
}

// Forget deletes a workflow that has ended.
func (r *Revoker) Forget(ctx context.Context, id string) error {
	f, err := r.store.Flows.Address(ctx, id)
	if err != nil {
		return err
	}
	p, err := r.progress.of(ctx, id)
	if err != nil {
		return err
	}
	if !p.Ended {
		return errors.New("it has not ended; revoke it first")
	}
	return r.store.Flows.Drop(ctx, f)
}

// RevokeNode stops one node and, if it runs, its handler.
func (r *Revoker) Node(ctx context.Context, id, node string) error {
	fl, err := r.graphs.load(ctx, id)
	if err != nil {
		return err
	}
	nid, err := graph.ParseID(node)
	if err != nil {
		return err
	}
	g, err := r.graphs.of(ctx, fl.Flow, nid.Scope)
	if err != nil {
		return err
	}
	if nid.Index >= len(g.Nodes) || g.Passive(nid.Index) {
		return fmt.Errorf("the workflow has no node %s", node)
	}
	return r.advancer.stopNodes(ctx, fl, []graph.ID{nid}, "")
}
