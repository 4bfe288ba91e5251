package graph

import (
	"slices"
)

// users returns for each node the nodes that need it, among those that the result of g needs.
func users(g *Graph) map[int][]int {
	out := map[int][]int{}
	for i := range g.closure(g.Root) {
		for _, p := range g.Nodes[i].preds() {
			out[p] = append(out[p], i)
		}
	}
	return out
}

// limit makes the members of group start only with one of its places. A member of more than one task
// gets a permit before its first own nodes. A member that holds a place waits only for its own nodes: nodes that
// others need too must have ended before it takes the place. Otherwise groups could wait for each other's places. A
// member whose own nodes only rescue nodes that others need takes no place.
func (c *compiler) limit(group int) error {
	g := c.g
	users := users(g)
	for _, m := range g.Nodes[group].Args {
		if g.Nodes[m].Rel != 0 {
			continue
		}
		own := map[int]bool{m: true}
		inside := g.closure(m)
		for grown := true; grown; {
			grown = false
			for k := range inside {
				if !own[k] && !slices.ContainsFunc(users[k], func(u int) bool { return !own[u] }) {
					own[k], grown = true, true
				}
			}
		}
		g.Nodes[m].Rel = group + 1
		if len(own) == 1 && g.Nodes[m].Kind == Task && g.Nodes[m].Lim == 0 {
			g.Nodes[m].Lim = group + 1
			continue
		}
		spare(g, own)
		if len(own) == 0 {
			g.Nodes[m].Rel = 0
			continue
		}
		before, ended := outside(g, own)
		if len(ended) > 0 {
			o, err := c.add(Node{Kind: Outcomes, Args: ended})
			if err != nil {
				return err
			}
			before = append(before, o)
		}
		p, err := c.add(Node{Kind: Permit, Lim: group + 1, After: before})
		if err != nil {
			return err
		}
		g.Nodes[m].By = p + 1
		c.gate(own, p)
	}
	return nil
}

// spare removes from own the nodes that need no place: rescues and values of nodes that are not in own.
func spare(g *Graph, own map[int]bool) {
	for taken := true; taken; {
		taken = false
		for k := range own {
			kind := g.Nodes[k].Kind
			if kind == Task || kind == Each || slices.ContainsFunc(g.Nodes[k].preds(), func(p int) bool { return own[p] }) {
				continue
			}
			delete(own, k)
			taken = true
		}
	}
}

// outside returns the other nodes that own needs: before must succeed, ended need only end.
func outside(g *Graph, own map[int]bool) (before, ended []int) {
	for k := range own {
		n := &g.Nodes[k]
		for _, p := range n.preds() {
			list := &before
			if n.Kind == Outcomes && slices.Contains(n.Args, p) {
				list = &ended
			}
			if !own[p] && !slices.Contains(*list, p) {
				*list = append(*list, p)
			}
		}
	}
	slices.Sort(before)
	slices.Sort(ended)
	return before, ended
}
