package engine

import (
	"context"
	"slices"
	"strconv"
	"strings"

	"muster/tasks/internal/graph"
	"muster/tasks/internal/store"
)

// whole is a workflow with all that Redis has of it.
type whole struct {
	*flow
	fields map[string]string
	ids    []graph.ID              // of the nodes; those of a plan follow the planned node
	graphs map[string]*graph.Graph // by scope
}

// graph returns the graph that one of the nodes is in.
func (w *whole) graph(id graph.ID) *graph.Graph { return w.graphs[id.Scope] }

// whole reads a whole workflow.
func (gs *graphs) whole(ctx context.Context, id string) (*whole, error) {
	fl, err := gs.load(ctx, id)
	if err != nil {
		return nil, err
	}
	fields, err := gs.store.Flows.All(ctx, fl.Flow)
	if err != nil {
		return nil, err
	}
	w := &whole{flow: fl, fields: fields, graphs: map[string]*graph.Graph{}}
	return w, w.walk(gs, "")
}

// walk adds the nodes of a scope, each with those of its plan behind it.
func (w *whole) walk(gs *graphs, scope string) error {
	g, _ := gs.get(w.ID, scope)
	if g == nil {
		var err error
		if g, err = gs.learn(w.ID, scope, []byte(w.fields[store.GraphField(scope)]), !over(w.fields)); err != nil {
			return err
		}
	}
	w.graphs[scope] = g
	for i := range g.Nodes {
		for _, id := range w.instances(g, graph.ID{Scope: scope, Index: i, Inst: -1}) {
			w.ids = append(w.ids, id)
			if _, planned := w.fields[store.GraphField(id.String())]; !planned {
				continue
			}
			if err := w.walk(gs, id.String()); err != nil {
				return err
			}
		}
	}
	return nil
}

// instances returns the nodes that there are of a node of a graph: a map with its members, the runs of a catch, none
// for a value, and else the node itself.
func (w *whole) instances(g *graph.Graph, id graph.ID) []graph.ID {
	switch n := &g.Nodes[id.Index]; {
	case g.Passive(id.Index):
		return nil
	case n.Kind == graph.Catch:
		return w.runsOf(id)
	case n.Kind == graph.Each:
		out := []graph.ID{id}
		m, _ := strconv.Atoi(w.fields["m"+id.String()])
		for k := range m {
			out = append(out, id.At(id.Index, k))
		}
		return out
	}
	return []graph.ID{id}
}

// runsOf returns the runs of a catch, in order.
func (w *whole) runsOf(id graph.ID) (out []graph.ID) {
	prefix := id.String()
	for f := range w.fields {
		if f != prefix && !strings.HasPrefix(f, prefix+".") {
			continue
		}
		if run, err := graph.ParseID(f); err == nil && run.Scope == id.Scope && run.Index == id.Index {
			out = append(out, run)
		}
	}
	slices.SortFunc(out, func(a, b graph.ID) int { return a.Inst - b.Inst })
	return out
}
