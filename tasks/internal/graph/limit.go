package graph

import "slices"

// limit lets at most AtMost members of each limited list run at once. A member takes a place of its list before its
// first own node runs, and releases it when the member ends. The own nodes of a member are the nodes that only this
// member needs: the member dominates them in the graph from the result down. A place is taken by the member itself if
// it is its only own node, and else by a Permit, on which the first own nodes depend.
//
// A member that holds a place must depend only on its own nodes, else members could wait for each other's places. So a
// Permit depends on the end of all other nodes that the own nodes need. The sets of own nodes are nested or disjoint, so
// the Permit of an inner list is an own node of the outer member.
func (c *compiler) limit(o *order) error {
	g := c.g
	if !slices.ContainsFunc(g.Nodes, Node.limited) {
		return nil
	}
	for i := range g.Nodes {
		if !g.Nodes[i].limited() {
			continue
		}
		for _, m := range g.Nodes[i].Args {
			if g.Nodes[m].Rel == 0 {
				g.Nodes[m].Rel = i + 1
			}
		}
	}
	l := &limiter{g: g, order: o, top: len(g.Nodes), dom: newTree(len(g.Nodes)), encl: newTree(len(g.Nodes))}
	l.dominate(c.side)
	l.measure()
	if err := l.permit(c); err != nil {
		return err
	}
	l.gate()
	_, err := orderOf(g)
	return err
}

// limited reports whether n is a list or a join whose members wait for places.
func (n Node) limited() bool {
	return (n.Kind == List || n.Kind == Pair) && n.AtMost > 0 && n.AtMost < len(n.Args)
}

// limiter computes the Permits of a graph. The result and the other nodes that no node needs have a common parent, top.
type limiter struct {
	g     *Graph
	order *order
	top   int
	dom   tree // of dominators; nodes that are only needed by callbacks are not in it
	encl  tree // the members with a Permit, each below the one that encloses it

	// Node k is an own node of the members that dominate it. Of these, the nodes that only rescue or collect nodes that
	// others need take no place: they are not held back, and count as nodes of others.
	held  []int // of a node, the depth of the innermost dominator for whose place it is held back
	needs []int // of a node, the depth of the innermost dominator that holds back one of its predecessors

	permits []int // by member; 0 for none
	inner   []int // of a node, the innermost member with a Permit that dominates it; top for none
}

// dominate builds the tree of dominators: the parent of a node is where all paths to it from the top meet last.
func (l *limiter) dominate(side map[int]bool) {
	for i := range l.dom.parent {
		l.dom.parent[i] = none
	}
	l.dom.add(l.top, l.top)
	for _, k := range slices.Backward(l.order.nodes) {
		parent := l.dom.parent[k]
		switch {
		case k == l.g.Root:
			parent = l.top
		case parent != none:
		case side[k] || l.g.Nodes[k].Kind == Catch:
			continue
		default:
			parent = l.top
		}
		l.dom.add(k, parent)
		for _, v := range l.order.preds[k] {
			if at := l.dom.parent[v]; at == none {
				l.dom.parent[v] = k
			} else {
				l.dom.parent[v] = l.dom.meet(at, k)
			}
		}
	}
}

// has reports whether node k is in the tree of dominators.
func (l *limiter) has(k int) bool { return l.dom.parent[k] != none }

// runs reports whether node k starts work as soon as nothing holds it back.
func (l *limiter) runs(k int) bool { return l.g.Nodes[k].Kind == Task || l.g.Nodes[k].Kind == Each }

// measure computes held and needs.
func (l *limiter) measure() {
	l.held, l.needs = make([]int, l.top), make([]int, l.top)
	for _, k := range l.order.nodes {
		if !l.has(k) {
			continue
		}
		for _, v := range l.order.preds[k] {
			l.needs[k] = max(l.needs[k], l.heldWithin(v))
		}
		l.held[k] = l.needs[k]
		if l.runs(k) {
			l.held[k] = l.dom.depth[k]
		}
	}
}

// heldWithin returns the depth of the innermost dominator that holds back node v and also dominates the nodes that need v.
func (l *limiter) heldWithin(v int) int { return min(l.held[v], l.dom.depth[l.dom.parent[v]]) }

// permit decides how each member takes its place, and adds the Permits.
func (l *limiter) permit(c *compiler) error {
	l.permits, l.inner = make([]int, l.top), make([]int, l.top+1)
	l.inner[l.top] = l.top
	l.encl.add(l.top, l.top)
	for _, k := range slices.Backward(l.order.nodes) {
		if !l.has(k) {
			continue
		}
		n := &l.g.Nodes[k]
		l.inner[k] = l.inner[l.dom.parent[k]]
		switch alone := l.needs[k] < l.dom.depth[k]; {
		case n.Rel == 0:
			continue
		case alone && n.Kind == Task:
			n.Lim = n.Rel
			continue
		case alone && n.Kind != Each:
			n.Rel = 0 // there is nothing to hold back
			continue
		}
		l.encl.add(k, l.inner[k])
		l.inner[k] = k
		p, err := c.add(Node{Kind: Permit, Lim: n.Rel})
		if err != nil {
			return err
		}
		l.permits[k], l.g.Nodes[k].By = p, p+1
	}
	return nil
}

// gate adds the edges to and from the Permits. It omits edges that follow from edges of an enclosing member.
func (l *limiter) gate() {
	for _, k := range l.order.nodes {
		if !l.has(k) || l.inner[k] == l.top {
			continue
		}
		in := l.inner[k]
		for _, v := range l.order.preds[k] {
			from := l.heldWithin(v)
			if v := &l.g.Nodes[v]; l.dom.depth[in] <= from || len(v.Args)+len(v.After)+v.In == 0 && v.Kind != Task {
				continue // v is held back, too, or has ended from the start
			}
			m := l.encl.climb(in, func(a int) bool { return l.dom.depth[a] > from })
			if l.dom.depth[m] <= l.held[k] {
				p := &l.g.Nodes[l.permits[m]]
				p.Args = append(p.Args, v)
			}
		}
		if l.runs(k) && l.needs[k] < l.dom.depth[in] {
			n := &l.g.Nodes[k]
			n.After = append(slices.Clone(n.After), l.permits[in])
		}
	}
	for m, at := range l.permits {
		if at == 0 {
			continue
		}
		p, outer := &l.g.Nodes[at], l.encl.parent[m]
		slices.Sort(p.Args)
		p.Args = slices.Compact(p.Args)
		if len(p.Args) == 0 && outer != l.top {
			p.After = []int{l.permits[outer]}
		}
	}
}

// none is the parent of nodes that are not in a tree.
const none = -1

// tree is a rooted tree of numbers, which are added after their parents. A jump skips so many ancestors that climb and
// meet take a logarithmic number of steps.
type tree struct{ parent, jump, depth []int }

// newTree returns a tree for the numbers 0 to n.
func newTree(n int) tree { return tree{make([]int, n+1), make([]int, n+1), make([]int, n+1)} }

// add adds k below parent; the root is its own parent.
func (t *tree) add(k, parent int) {
	t.parent[k] = parent
	if k == parent {
		t.jump[k] = k
		return
	}
	t.depth[k] = t.depth[parent] + 1
	t.jump[k] = parent
	if j := t.jump[parent]; t.depth[parent]-t.depth[j] == t.depth[j]-t.depth[t.jump[j]] {
		t.jump[k] = t.jump[j]
	}
}

// climb returns the highest of k and its ancestors for which ok is true. ok is true for k, false for the root, and for a
// node only if it is for all between that and k.
func (t *tree) climb(k int, ok func(int) bool) int {
	for {
		switch {
		case ok(t.jump[k]):
			k = t.jump[k]
		case ok(t.parent[k]):
			k = t.parent[k]
		default:
			return k
		}
	}
}

// meet returns the lowest common ancestor of a and b.
func (t *tree) meet(a, b int) int {
	if t.depth[a] < t.depth[b] {
		a, b = b, a
	}
	if t.depth[a] > t.depth[b] {
		a = t.parent[t.climb(a, func(k int) bool { return t.depth[k] > t.depth[b] })]
	}
	for a != b {
		if t.jump[a] != t.jump[b] {
			a, b = t.jump[a], t.jump[b]
		} else {
			a, b = t.parent[a], t.parent[b]
		}
	}
	return a
}
