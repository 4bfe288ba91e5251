package engine

import (
	"context"

	"muster/tasks/internal/graph"
)

// Predecessors returns the nodes with a handler that the run comes after, at most so many.
func (r *Run) Predecessors(ctx context.Context, most int) ([]string, error) {
	var out []string
	seen := map[int]bool{}
	v := r.w.e.newValues(r.fl)
	var walk func(i int) error
	walk = func(i int) error {
		if seen[i] || len(out) >= most {
			return nil
		}
		seen[i] = true
		n := &r.g.Nodes[i]
		if !r.g.Virtual(i) {
			out = append(out, r.id.At(i, -1).String())
			return nil
		}
		if n.Kind == graph.Each {
			m, err := v.members(ctx, r.id.At(i, -1).String())
			if err != nil {
				return err
			}
			for k := 0; k < m && len(out) < most; k++ {
				out = append(out, r.id.At(i, k).String())
			}
			if m > 0 {
				return nil
			}
		}
		for _, p := range r.g.Preds(i) {
			if err := walk(p); err != nil {
				return err
			}
		}
		return nil
	}
	for _, p := range r.g.Preds(r.id.Index) {
		if err := walk(p); err != nil {
			return nil, err
		}
	}
	if len(out) == 0 && r.id.Scope != "" {
		out = append(out, r.id.Scope)
	}
	return out, nil
}
