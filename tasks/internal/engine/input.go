package engine

import (
	"context"
	"fmt"
	"slices"

	"muster/tasks/internal/graph"
	"muster/tasks/internal/store"
)

// input returns the input of a node, with what is bound to its task.
func (v *values) input(ctx context.Context, g *graph.Graph, id graph.ID, rec *store.Record) ([]byte, error) {
	input, err := v.givenTo(ctx, g, id, rec)
	if err != nil {
		return nil, err
	}
	return bound(&g.Specs[g.Nodes[id.Index].Spec], input), nil
}

// bound adds to an input what is bound to the task.
func bound(sp *graph.Spec, input []byte) []byte {
	for _, second := range slices.Backward(sp.Bind) {
		input = slices.Concat([]byte(`{"first":`), input, []byte(`,"second":`), second, []byte("}"))
	}
	return input
}

// givenTo returns what a node gets: its literal, or what it comes after.
func (v *values) givenTo(ctx context.Context, g *graph.Graph, id graph.ID, rec *store.Record) ([]byte, error) {
	n := &g.Nodes[id.Index]
	switch {
	case n.Kind == graph.Catch:
		of := id.At(n.In-1, -1)
		if id.Inst >= 0 {
			if len(n.Args) > 0 {
				if id.Inst >= len(n.Args) {
					return nil, fmt.Errorf("workflow %s %w: it has no node %s", v.fl.ID, errUnreadable, id)
				}
				of = id.At(n.Args[id.Inst], -1)
			} else {
				of.Inst = id.Inst
			}
		}
		f, err := v.failure(ctx, of)
		if err != nil {
			return nil, err
		}
		return encodeFailure(f), nil
	case rec.Input != nil:
		return rec.Input, nil
	case n.In > 0 && id.Inst < 0:
		return v.value(ctx, id.At(n.In-1, -1))
	}
	return nil, fmt.Errorf("node %s of workflow %s: %w: it has no input", id, v.fl.ID, errUnreadable)
}
