package engine

import (
	"cmp"
	"fmt"
	"strconv"

	"muster/tasks/internal/graph"
	"muster/tasks/internal/store"
)

// maxInput bounds a literal input.
const maxInput = 16 << 20

// flow is a workflow with its graph.
type flow struct {
	store.Flow
	g     *graph.Graph
	scope string       // of plan
	plan  *graph.Graph // of the nodes of an element, if they are in a plan
}

func newFlow(f store.Flow, g *graph.Graph) *flow {
	f.Created = g.Created
	f.Retention = cmp.Or(g.Retention, DefaultRetention.Milliseconds())
	f.Failed = cmp.Or(g.FailureRetention, DefaultFailureRetention.Milliseconds())
	f.Root = strconv.Itoa(g.Root)
	first, last := g.Ends()
	f.Caption = store.Caption{Tasks: store.Title(first, last), Name: g.Name, Labels: g.Labels, Origin: g.Origin}.String()
	return &flow{Flow: f, g: g}
}

// grown returns the stored form of a compiled graph at a scope of its workflow.
func grown(g *graph.Graph, scope string) (store.Grow, error) {
	var grow store.Grow
	grow.Work, grow.Virtual = g.Count()
	if err := constantsFit(g); err != nil {
		return grow, err
	}
	at := graph.ID{Scope: scope, Inst: -1}
	size := 0
	for i := range g.Nodes {
		if in, ok := g.Input(i); ok {
			if err := fits(in, "the input of task "+g.Specs[g.Nodes[i].Spec].Task); err != nil {
				return grow, err
			}
			grow.Inputs = append(grow.Inputs, store.Literal{Node: at.At(i, -1).String(), Input: in})
			size += len(in)
		}
	}
	g.Drops = size > maxKeptInputs
	var err error
	if grow.Graph, err = g.Encode(); err != nil {
		return grow, err
	}
	grow.Roots = releases(g, at)
	g.ForgetInputs() // the graph is kept, and they can be large
	return grow, nil
}

// maxKeptInputs limits the size of the literal inputs of a graph that are kept for display until the workflow expires. Larger
// inputs are kept only for nodes without success.
const maxKeptInputs = 4 << 10

// releases returns the nodes that wait for nothing.
func releases(g *graph.Graph, at graph.ID) []store.Release {
	var out spans
	for _, i := range g.Roots() {
		id := at.At(i, -1)
		out.add(id, release(g, id, true))
	}
	return out.list
}

// spans collects nodes that can run, as spans where possible.
type spans struct {
	list        []store.Release
	first, last graph.ID // of the span at the end
}

// add adds a node.
func (s *spans) add(id graph.ID, r store.Release) {
	next, end := s.last.At(s.last.Index+1, -1), id.Index
	if s.last.Inst >= 0 {
		next, end = s.last.At(s.last.Index, s.last.Inst+1), id.Inst
	}
	if k := len(s.list) - 1; k >= 0 && id == next && r.Lane != store.NoLane {
		if r.Span = s.list[k].Span; r == s.list[k] {
			s.list[k].Span, s.last = s.first.String()+"-"+strconv.Itoa(end), id
			return
		}
	}
	r.Span = id.String()
	s.list, s.first, s.last = append(s.list, r), id, id
}

// release returns where a node goes once it could run, how long it waits from then on, and the group whose place it needs, as "group cap".
// root: it waits for no other node.
func release(g *graph.Graph, id graph.ID, root bool) store.Release {
	n := &g.Nodes[id.Index]
	member := id.Inst >= 0 && n.Kind == graph.Each
	r := store.Release{Lane: store.NoLane}
	switch {
	case member && n.AtMost > 0:
		r.Lim = id.At(id.Index, -1).String() + " " + strconv.Itoa(n.AtMost)
	case !member && n.Lim > 0:
		r.Lim = id.At(n.Lim-1, -1).String() + " " + strconv.Itoa(g.Nodes[n.Lim-1].AtMost)
	}
	var in, at, expires int64
	if member || !g.Virtual(id.Index) {
		sp := &g.Specs[n.Spec]
		r.Lane = store.Lane(sp.QueueName(), sp.Priority)
		in, at, expires = sp.In, sp.At, sp.Expires
	}
	if root {
		in, at = max(in, g.Delay), max(at, g.At)
		if expires > 0 {
			expires = max(1, expires-max(0, g.Behind-in))
		}
		in = max(0, in-g.Behind)
	}
	r.Delay = store.Delay(in, at, expires)
	return r
}

// constantsFit returns an error if a constant of g is too large.
func constantsFit(g *graph.Graph) error {
	for i := range g.Nodes {
		if err := fits(g.Nodes[i].Value, "a constant"); err != nil {
			return err
		}
	}
	for i := range g.Specs {
		for _, second := range g.Specs[i].Bind {
			if err := fits(second, "argument bound to task "+g.Specs[i].Task); err != nil {
				return err
			}
		}
	}
	for i := range g.Subs {
		if err := constantsFit(g.Subs[i].Graph); err != nil {
			return err
		}
	}
	return nil
}

// fits returns an error if an input is too large.
func fits(in []byte, what string) error {
	if len(in) > maxInput {
		return fmt.Errorf("%s has %d bytes, more than %d: store it and pass a key", what, len(in), maxInput)
	}
	return nil
}

// need returns how many outcomes node i waits for, as the scripts read it.
func need(g *graph.Graph, id graph.ID, i int) string {
	k := strconv.Itoa(g.Need(i))
	if n := &g.Nodes[i]; n.Kind == graph.EachEnded {
		return k + "+" + id.At(n.In-1, -1).String()
	}
	return k
}
