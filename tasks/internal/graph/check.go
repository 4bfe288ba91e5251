package graph

import (
	"fmt"
	"slices"
)

// maxArgs bounds the references between the nodes of a graph: ten for each of the most nodes.
const maxArgs = 10 * MaxNodes

// check returns an error if a graph that was read from Redis is invalid: it refers to nodes or tasks that it does not
// have, a node lacks something that its kind needs, or nodes depend on each other.
func check(g *Graph) error {
	if g.Root < 0 || g.Root >= len(g.Nodes) || g.Nodes[g.Root].Kind == Permit {
		return fmt.Errorf("node %d of %d is not a root", g.Root, len(g.Nodes))
	}
	for i := range g.Specs {
		if s := g.Specs[i].Sub; s < 0 || s > len(g.Subs) {
			return fmt.Errorf("task %d is graph %d of %d", i, s-1, len(g.Subs))
		}
	}
	for i := range g.Subs {
		s := &g.Subs[i]
		if err := check(s.Graph); err != nil {
			return fmt.Errorf("graph %d: %w", i, err)
		}
		if s.Hole < -1 || s.Hole >= len(s.Graph.Nodes) || s.Hole >= 0 && s.Graph.Nodes[s.Hole].Kind != Const {
			return fmt.Errorf("graph %d has no node %d for its element", i, s.Hole)
		}
	}
	forward := false
	for i := range g.Nodes {
		n := &g.Nodes[i]
		if !g.valid(n) {
			return fmt.Errorf("node %d of kind %d is invalid", i, n.Kind)
		}
		forward = forward || n.refersTo(i)
	}
	if !forward { // the common case, without a cycle
		return nil
	}
	_, err := orderOf(g)
	return err
}

// refersTo reports whether n waits for node i or for a later one.
func (n *Node) refersTo(i int) bool {
	later := func(ref int) bool { return ref >= i }
	return n.In > i || slices.ContainsFunc(n.Args, later) || slices.ContainsFunc(n.After, later)
}

// valid reports whether a node refers to nodes and tasks of g, and has what its kind needs.
func (g *Graph) valid(n *Node) bool {
	size := len(g.Nodes)
	outside := func(ref int) bool { return ref < 0 || ref >= size }
	for _, ref := range [...]int{n.In, n.Lim, n.Rel, n.By} {
		if ref < 0 || ref > size {
			return false
		}
	}
	if slices.ContainsFunc(n.Args, outside) || slices.ContainsFunc(n.After, outside) || n.AtMost < 0 || n.Single && len(n.Args) != 1 {
		return false
	}
	switch n.Kind {
	case List, Outcomes, Permit, Const:
		return true
	case Task:
		return n.Spec >= 0 && n.Spec < len(g.Specs)
	case Each, Catch:
		return n.Spec >= 0 && n.Spec < len(g.Specs) && n.In > 0
	case Wrap:
		return n.In > 0
	case EachEnded:
		return n.In > 0 && g.Nodes[n.In-1].Kind == Each
	case Pair, Or:
		return len(n.Args) == 2
	}
	return false
}

// order has the nodes of a graph in an order in which each comes after its predecessors.
type order struct {
	nodes []int
	preds [][]int // of each node
}

// orderOf returns the order of the nodes of g, or an error if nodes depend on each other.
func orderOf(g *Graph) (*order, error) {
	o := &order{make([]int, 0, len(g.Nodes)), make([][]int, len(g.Nodes))}
	left := make([]int, len(g.Nodes))
	next := make([][]int, len(g.Nodes))
	for i := range g.Nodes {
		ps := g.Nodes[i].preds()
		o.preds[i] = ps
		left[i] = len(ps)
		for _, p := range ps {
			next[p] = append(next[p], i)
		}
		if len(ps) == 0 {
			o.nodes = append(o.nodes, i)
		}
	}
	for at := 0; at < len(o.nodes); at++ {
		for _, n := range next[o.nodes[at]] {
			if left[n]--; left[n] == 0 {
				o.nodes = append(o.nodes, n)
			}
		}
	}
	if len(o.nodes) < len(g.Nodes) {
		return nil, fmt.Errorf("%w: parts depend on each other; look for two uses of After in opposite order", ErrInvalid)
	}
	return o, nil
}
