package engine

import (
	"context"
	"fmt"
	"maps"
	"strconv"

	"muster/tasks/internal/graph"
	"muster/tasks/internal/store"
)

// records reads the records of a workflow, each once.
type records struct {
	all    *graphs
	fl     *flow
	recs   map[string]store.Record
	counts map[string]int
	graphs map[string]*graph.Graph // by scope
}

// graph returns the graph that a node is in.
func (rs *records) graph(ctx context.Context, id graph.ID) (*graph.Graph, error) {
	g := rs.graphs[id.Scope]
	if g == nil {
		var err error
		if g, err = rs.all.of(ctx, rs.fl.Flow, id.Scope); err != nil {
			return nil, err
		}
		rs.graphs[id.Scope] = g
	}
	return g, hasNode(g, rs.fl.ID(), id)
}

// named returns a node by its name, with its graph, which is read once.
func (rs *records) named(ctx context.Context, node string) (graph.ID, *graph.Graph, error) {
	id, err := graph.ParseID(node)
	if err != nil {
		return id, nil, fmt.Errorf("workflow %s %w: %w", rs.fl.ID(), errUnreadable, err)
	}
	g, err := rs.graph(ctx, id)
	return id, g, err
}

// refresh drops the records that may have changed since they were read: the records of nodes that were not terminal.
func (rs *records) refresh() {
	maps.DeleteFunc(rs.recs, func(_ string, r store.Record) bool { return !r.Terminal() })
}

// fetch reads the records of nodes that were not read before.
func (rs *records) fetch(ctx context.Context, ids []string) error {
	var missing []string
	for _, id := range ids {
		if _, ok := rs.recs[id]; !ok {
			missing = append(missing, id)
			rs.recs[id] = store.Record{}
		}
	}
	raws, err := rs.all.store.Flows.Fields(ctx, rs.fl.Flow, missing)
	if err != nil {
		return err
	}
	for i, id := range missing {
		rs.recs[id] = store.ParseRecord(raws[i], rs.fl.Created)
	}
	return nil
}

// record returns the record of a node.
func (rs *records) record(ctx context.Context, id string) (store.Record, error) {
	err := rs.fetch(ctx, []string{id})
	return rs.recs[id], err
}

// members returns how many members a map has; -1 when that is not known yet.
func (rs *records) members(ctx context.Context, id string) (int, error) {
	if n, ok := rs.counts[id]; ok {
		return n, nil
	}
	raws, err := rs.all.store.Flows.Fields(ctx, rs.fl.Flow, []string{store.FieldMembersOf + id})
	if err != nil {
		return 0, err
	}
	if raws[0] == nil {
		return -1, nil
	}
	n, err := strconv.Atoi(string(raws[0]))
	if err != nil {
		return 0, fmt.Errorf("workflow %s %w: members of map %s: %w", rs.fl.ID(), errUnreadable, id, err)
	}
	rs.counts[id] = n
	return n, nil
}
