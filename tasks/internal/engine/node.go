package engine

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"

	"muster/tasks/internal/graph"
	"muster/tasks/internal/store"
	"muster/tasks/tasktype"
)

// ErrNoNode means that a workflow has no node with the ID.
var ErrNoNode = store.Kind(store.ErrNotFound, "the workflow has no such node")

// Node returns a node of a workflow with its input and its attempts. It reads only that node, so it omits Needs,
// Side, Ready and Scheduled, and Waits except for an open node.
func (in *Inspector) Node(ctx context.Context, workflow, node string) (d tasktype.NodeDetail, err error) {
	fl, err := in.graphs.load(ctx, workflow)
	if err != nil {
		return d, err
	}
	id, g, err := in.graphs.named(ctx, fl, node)
	if err != nil {
		return d, err
	}
	v := in.graphs.values(fl)
	fields, err := in.store.Flows.Fields(ctx, fl.Flow, store.FieldTasks, node, store.FieldError+node, store.FieldProgress+node, store.FieldRuns+node,
		store.FieldPlannedAt+node, store.FieldSpans, store.FieldInput+node, store.FieldStored+node, store.FieldOutput)
	if err == nil && fields[store.FieldTasks] == "" {
		err = ErrUnknown // it has expired, and its graph was in memory
	}
	if err != nil {
		return d, err
	}
	if err := v.exists(ctx, g, id, fields[node]); err != nil {
		return d, err
	}
	rec := store.ParseRecord([]byte(fields[node]), fl.Created)
	var l *store.NodeLease
	if !rec.Terminal() {
		running, err := in.store.Leases.OfFlow(ctx, fl.Flow)
		if err != nil {
			return d, err
		}
		l = running[node]
	}
	d = tasktype.NodeDetail{Node: nodeInfo(g, id, fields, fl.Created, l), Tried: store.ParseRuns([]byte(fields[store.FieldRuns+node])), Headers: fl.g.Headers}
	if d.Open {
		d.Choices = choicesOf(&g.Specs[g.Nodes[id.Index].Spec])
	}
	if d.Input, err = v.keptInput(ctx, g, id, &rec, fields); err != nil {
		return d, err
	}
	last, err := strconv.Atoi(cmp.Or(fields[store.FieldStored+node], "-1"))
	if err != nil {
		return d, fmt.Errorf("steps of node %s: %w", node, err)
	}
	steps, err := in.store.Flows.Steps(ctx, fl.Flow, node, last)
	for n := range last + 1 {
		if st, ok := steps[n]; ok && n == 0 {
			d.Saved = &st
		} else if ok {
			d.Steps = append(d.Steps, st)
		}
	}
	if err != nil || fields[store.FieldOutput] == "" {
		return d, err
	}
	d.Output, err = in.store.Flows.Output(ctx, &store.OutputReader{Flow: fl.Flow, Node: node})
	return d, err
}

// named returns the node that a client has named, with its graph, or ErrNoNode. Whether a member exists is not checked.
func (gs *graphs) named(ctx context.Context, fl *flow, node string) (graph.ID, *graph.Graph, error) {
	if _, err := graph.ParseID(node); err != nil {
		return graph.ID{}, nil, ErrNoNode
	}
	id, g, err := gs.values(fl).named(ctx, node)
	if errors.Is(err, ErrUnknown) || errors.Is(err, errUnreadable) && g != nil {
		err = ErrNoNode
	}
	return id, g, err
}

// existing returns a node of a workflow that a client has named, or ErrNoNode if it does not exist.
func (gs *graphs) existing(ctx context.Context, refOrID, node string) (fl *flow, id graph.ID, g *graph.Graph, err error) {
	if fl, err = gs.load(ctx, refOrID); err != nil {
		return nil, id, nil, err
	}
	if id, g, err = gs.named(ctx, fl, node); err != nil {
		return nil, id, nil, err
	}
	fields, err := gs.store.Flows.Fields(ctx, fl.Flow, node)
	if err != nil {
		return nil, id, nil, err
	}
	return fl, id, g, gs.values(fl).exists(ctx, g, id, fields[node])
}

// exists returns ErrNoNode if a node that the graph allows does not exist.
func (v *values) exists(ctx context.Context, g *graph.Graph, id graph.ID, record string) error {
	switch n := &g.Nodes[id.Index]; {
	case record != "":
	case n.Kind == graph.Catch || id.Inst < 0 && g.Passive(id.Index):
		return ErrNoNode
	case id.Inst >= 0:
		m, err := v.members(ctx, id.At(id.Index, -1).String())
		if err == nil && id.Inst >= m {
			err = ErrNoNode
		}
		return err
	}
	return nil
}

// keptInput returns the input of a node; fields has its literal input. It returns nil if it is not known any more.
func (v *values) keptInput(ctx context.Context, g *graph.Graph, id graph.ID, rec *store.Record, fields map[string]string) (json.RawMessage, error) {
	n := &g.Nodes[id.Index]
	if id.Inst < 0 && g.Virtual(id.Index) {
		return nil, nil
	}
	known := *rec
	if own := fields[store.FieldInput+id.String()]; own != "" {
		known.Input = []byte(own)
	}
	if known.Input == nil && id.Inst >= 0 && n.Kind == graph.Each {
		elements, err := v.elements(ctx, id.At(n.In-1, -1))
		if err != nil || id.Inst >= len(elements) {
			return nil, unknownInput(err)
		}
		known.Input = elements[id.Inst]
	}
	if known.Input == nil && n.In > 0 && n.Kind != graph.Catch && id.Inst < 0 {
		if state, _, _, err := v.state(ctx, id.At(n.In-1, -1)); err != nil || state != store.StateSucceeded {
			return nil, err
		}
	}
	input, err := v.input(ctx, g, id, &known)
	if err := unknownInput(err); err != nil {
		return nil, err
	}
	return bytes.Clone(input), nil
}

// unknownInput returns nil for an error that means that an input is not known or has expired.
func unknownInput(err error) error {
	if errors.Is(err, errNoValue) || errors.Is(err, errUnreadable) {
		return nil
	}
	return err
}
