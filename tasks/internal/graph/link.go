package graph

import "slices"

// link computes from the nodes the effects of each outcome, and the number of outcomes that each node waits for.
func link(g *Graph) {
	for i := range g.Subs {
		link(g.Subs[i].Graph)
	}
	n := len(g.Nodes)
	g.succs, g.members = make([][]Edge, n), make([][]Edge, n)
	g.need = make([]int, n)
	l := linker{g: g, seen: map[seenEdge]bool{}}
	l.findPassive()
	for i := range g.Nodes {
		g.failFast = g.failFast || g.Nodes[i].FailFast
		if !g.passive[i] {
			l.linkInputs(i)
		}
	}
	l.linkCatches()
	l.classify()
}

// findPassive finds the nodes that need no state: constants, and lists, pairs and outcomes that one node uses as its
// input.
func (l *linker) findPassive() {
	g := l.g
	g.passive = make([]bool, len(g.Nodes))
	uses := make([]int, len(g.Nodes))  // nodes that can read the parts of a passive one instead
	real := make([]bool, len(g.Nodes)) // whether a node waits for the node itself
	real[g.Root] = true
	for i := range g.Nodes {
		n := &g.Nodes[i]
		for _, a := range n.After {
			real[a] = true
		}
		switch n.Kind {
		case Task, Each:
			if n.In > 0 {
				uses[n.In-1]++
			}
		case List, Pair:
			for _, a := range n.Args {
				uses[a]++
			}
		case Wrap, Or, Outcomes, Catch, Permit:
			for _, p := range n.preds() {
				real[p] = true
			}
		}
	}
	for i := range g.Nodes {
		switch n := &g.Nodes[i]; n.Kind {
		case Const:
			g.passive[i] = !real[i] && len(n.After) == 0
		case List, Pair, Outcomes:
			g.passive[i] = !real[i] && uses[i] <= 1 && len(n.After) == 0 && n.Rel == 0
		}
	}
}

// linker adds the edges of a graph.
type linker struct {
	g    *Graph
	seen map[seenEdge]bool // beyond the first fewEdges of a node
}

type seenEdge struct {
	from int
	e    Edge
}

// fewEdges are searched one by one, which costs less than a map.
const fewEdges = 8

// edge adds an edge, unless it is there already.
func (l *linker) edge(from, to int, kind EdgeKind, inst int) {
	g, e := l.g, Edge{to, kind, inst}
	have := g.succs[from]
	known := slices.Contains(have[:min(fewEdges, len(have))], e)
	if len(have) >= fewEdges {
		k := seenEdge{from, e}
		known = known || l.seen[k]
		l.seen[k] = true
	}
	if known {
		return
	}
	g.succs[from] = append(have, e)
	if kind == Need || kind == Any {
		g.need[to]++
	}
}

// feed makes node to wait for the node from or, if that is passive, for its parts.
func (l *linker) feed(from, to int, kind EdgeKind) {
	if !l.g.passive[from] {
		l.edge(from, to, kind, -1)
		return
	}
	inner := Need
	if l.g.Nodes[from].Kind == Outcomes {
		inner = Any
	}
	for _, a := range l.g.Nodes[from].Args {
		l.feed(a, to, inner)
	}
}

// linkInputs adds the edges to node i, except those to a catch.
func (l *linker) linkInputs(i int) {
	g := l.g
	n := &g.Nodes[i]
	for _, a := range n.After {
		l.edge(a, i, Need, -1)
	}
	switch n.Kind {
	case Task, Wrap:
		if n.In > 0 {
			l.feed(n.In-1, i, Need)
		}
	case Each:
		l.feed(n.In-1, i, Need)
		g.members[i] = append(g.members[i], Edge{i, OfMap, -1})
	case EachEnded:
		m := &g.Nodes[n.In-1]
		l.feed(m.In-1, i, Need)
		for _, a := range m.After {
			l.edge(a, i, Need, -1)
		}
		l.edge(n.In-1, i, NoMap, -1)
		g.members[n.In-1] = append(g.members[n.In-1], Edge{i, Any, -1})
	case List, Pair:
		for _, a := range n.Args {
			l.feed(a, i, Need)
		}
	case Outcomes, Permit:
		for _, a := range n.Args {
			l.edge(a, i, Any, -1)
		}
	case Or:
		l.edge(n.Args[0], i, First, -1)
		l.edge(n.Args[1], i, Last, -1)
		l.edge(n.Args[0], n.Args[1], Rescuer, -1)
	}
}

// linkCatches adds the edges to the catches of OnError.
func (l *linker) linkCatches() {
	g := l.g
	rescuers := map[int]bool{}
	for i := range g.Nodes {
		if g.Nodes[i].Kind == Or {
			rescuers[g.Nodes[i].Args[1]] = true
		}
	}
	for i := range g.Nodes {
		n := &g.Nodes[i]
		if n.Kind != Catch || rescuers[i] {
			continue
		}
		if len(n.Args) > 0 {
			for j, a := range n.Args {
				l.edge(a, i, Catcher, j)
			}
			continue
		}
		l.edge(n.In-1, i, Catcher, -1)
		if g.Nodes[n.In-1].Kind == Each {
			g.members[n.In-1] = append(g.members[n.In-1], Edge{i, Catcher, -2})
		}
	}
}

// classify finds adjacent tasks whose success has the same effect.
func (l *linker) classify() {
	g := l.g
	g.class = make([]int, len(g.Nodes))
	for i := range g.Nodes {
		g.class[i] = i
		if i == 0 || g.Nodes[i].Kind != Task {
			continue
		}
		n, before := &g.Nodes[i], &g.Nodes[i-1]
		if before.Kind == Task && n.Spec == before.Spec && n.Rel == before.Rel && n.By == 0 && before.By == 0 &&
			slices.Equal(g.succs[i], g.succs[i-1]) {
			g.class[i] = g.class[i-1]
		}
	}
}
