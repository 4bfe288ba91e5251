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
	if g.Root < 0 || g.Root >= len(g.Nodes) {
		return fmt.Errorf("the root is node %d of %d", g.Root, len(g.Nodes))
	}
	if err := checkSubs(g); err != nil {
		return err
	}
	if r := &g.Nodes[g.Root]; r.Kind == Permit {
		return fmt.Errorf("the root, node %d, has no value", g.Root)
	}
	forward := false
	for i := range g.Nodes {
		n := &g.Nodes[i]
		if err := checkNode(g, n); err != nil {
			return fmt.Errorf("node %d %w", i, err)
		}
		forward = forward || n.refersTo(i)
	}
	if !forward { // the common case, without a cycle
		return nil
	}
	_, err := orderOf(g)
	return err
}

// checkSubs checks the graphs of members of maps, and the references of tasks to them.
func checkSubs(g *Graph) error {
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
	return nil
}

// refersTo reports whether n waits for node i or for a later one.
func (n *Node) refersTo(i int) bool {
	later := func(ref int) bool { return ref >= i }
	return n.In > i || slices.ContainsFunc(n.Args, later) || slices.ContainsFunc(n.After, later)
}

func checkNode(g *Graph, n *Node) error {
	for _, ref := range [...]int{n.In, n.Lim, n.Rel, n.By} {
		if ref < 0 || ref > len(g.Nodes) {
			return fmt.Errorf("refers to node %d of %d", ref-1, len(g.Nodes))
		}
	}
	for _, refs := range [...][]int{n.Args, n.After} {
		for _, ref := range refs {
			if ref < 0 || ref >= len(g.Nodes) {
				return fmt.Errorf("refers to node %d of %d", ref, len(g.Nodes))
			}
		}
	}
	if n.AtMost < 0 {
		return fmt.Errorf("has room for %d", n.AtMost)
	}
	switch n.Kind {
	case Task, Each, Catch:
		if n.Spec < 0 || n.Spec >= len(g.Specs) {
			return fmt.Errorf("runs task %d of %d", n.Spec, len(g.Specs))
		}
	}
	if n.Single && len(n.Args) != 1 {
		return fmt.Errorf("has %d outcomes, expected 1", len(n.Args))
	}
	switch n.Kind {
	case Task, List, Outcomes, Permit, Const:
	case Each, Wrap:
		if n.In == 0 {
			return fmt.Errorf("of kind %d has no input", n.Kind)
		}
	case Catch:
		if n.In == 0 {
			return fmt.Errorf("catches the failure of nothing")
		}
	case EachEnded:
		if n.In == 0 || g.Nodes[n.In-1].Kind != Each || g.Nodes[n.In-1].In == 0 {
			return fmt.Errorf("waits for the members of no map")
		}
	case Pair, Or:
		if len(n.Args) != 2 {
			return fmt.Errorf("has %d parts, expected 2", len(n.Args))
		}
	default:
		return fmt.Errorf("is of kind %d, which is unknown", n.Kind)
	}
	return nil
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
