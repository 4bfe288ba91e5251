package graph

import (
	"cmp"
	"encoding/json"
	"slices"
)

// Kind is the kind of a node.
type Kind uint8

// The kinds of nodes. All but Task, Catch and the members of a Map are virtual: no worker runs them.
const (
	Task      Kind = iota // runs a handler
	List                  // the values of Args
	Pair                  // the values of two Args, as an object
	Outcomes              // the outcomes of Args
	Wrap                  // the elements of In, as outcomes
	Or                    // the first of two Args that succeeded
	Each                  // a task for each element of In: a map
	EachEnded             // the outcomes of the members of the map In
	Catch                 // a task that runs on the failure of In, or of each of Args; known only once it runs
	Permit                // holds the place of a group's member under AtMost
	Const                 // Value
)

// Node is a part of a graph. References to other nodes are indexes; In, Lim, Rel and By are one more,
// so that zero is none.
type Node struct {
	Kind     Kind  `json:"k,omitempty"`
	Spec     int   `json:"s,omitempty"`
	In       int   `json:"i,omitempty"` // whose value is the input; none is a literal
	Args     []int `json:"-"`
	Ranges   []int `json:"a,omitempty"` // Args as first, count, …
	After    []int `json:"f,omitempty"` // must succeed first
	Lim      int   `json:"l,omitempty"` // needs a place of this group before it runs
	Rel      int   `json:"r,omitempty"` // releases a place of this group
	By       int   `json:"b,omitempty"` // the node that took the place, if not this
	AtMost   int   `json:"m,omitempty"`
	FailFast bool  `json:"q,omitempty"`
	Same     int   `json:"x,omitempty"` // how many more equal nodes follow
	Single   bool  `json:"1,omitempty"` // of an Outcomes: its only outcome, not a list

	Value json.RawMessage `json:"v,omitempty"` // of a Const
}

// Spec is how a task runs. Times are milliseconds.
type Spec struct {
	Task     string `json:"t"`
	Queue    string `json:"q,omitempty"`
	Priority int    `json:"p,omitempty"`
	Timeout  *int64 `json:"to,omitempty"`
	Hard     *int64 `json:"ht,omitempty"`
	MaxRetry int    `json:"mr,omitempty"`
	Base     int64  `json:"bb,omitempty"`
	Cap      int64  `json:"bc,omitempty"`
	Fixed    bool   `json:"bf,omitempty"`
	In       int64  `json:"in,omitempty"`
	At       int64  `json:"at,omitempty"`
	Expires  int64  `json:"ex,omitempty"`
	External bool   `json:"x,omitempty"` // completed externally, not by a handler

	Choices []Choice `json:"ch,omitempty"` // of an external task

	Bind []json.RawMessage `json:"w,omitempty"` // second halves of the input; the last one is added first
	Sub  int               `json:"u,omitempty"` // one more than the index of the graph that takes the place of the task
}

// Choice is a declared result of an external task.
type Choice struct {
	Label string          `json:"l"`
	Value json.RawMessage `json:"v"`
}

// EachSpec calls f with the specs of g and of the bodies of its maps.
func (g *Graph) EachSpec(f func(*Spec)) {
	for i := range g.Specs {
		f(&g.Specs[i])
	}
	for i := range g.Subs {
		g.Subs[i].Graph.EachSpec(f)
	}
}

// QueueName returns the queue of s.
func (s *Spec) QueueName() string {
	if s.Queue == "" {
		return "default"
	}
	return s.Queue
}

// Graph is the compiled form of a signature. It does not change.
type Graph struct {
	Header
	Template
}

// Header has the facts of a workflow that are not in its nodes.
type Header struct {
	V         int   `json:"v,omitempty"`
	Created   int64 `json:"c,omitempty"` // unix ms; stored only if it is not the time in the reference of the workflow
	Retention int64 `json:"r,omitempty"` // of a success, ms; 0 is the default
	// FailureRetention is the retention of a failure, likewise.
	FailureRetention int64  `json:"rf,omitempty"`
	Progress         string `json:"p,omitempty"`
	Overlap          string `json:"q,omitempty"` // policy towards other workflows with its unique key
	Delay            int64  `json:"d,omitempty"` // ms, of all that can run at once
	At               int64  `json:"t,omitempty"` // unix ms, likewise
	Every            *Every `json:"e,omitempty"` // options of the send, for the tasks of plans
	Drops            bool   `json:"y,omitempty"` // literal inputs are deleted when their nodes succeed
	Behind           int64  `json:"-"`           // ms from the time that durations count from to the send
	Tick             int64  `json:"k,omitempty"` // of the schedule that sent it, unix ms
	Planned          string `json:"-"`           // of a plan: the time at which it was stored, which distinguishes it from a plan that Redis lost
	// Headers are passed to every task.
	Headers map[string]string `json:"h,omitempty"`
	Name    string            `json:"w,omitempty"` // chosen by the sender
	Labels  map[string]string `json:"l,omitempty"`
	Origin  string            `json:"og,omitempty"` // id of the workflow that it runs again
}

// Template has the nodes of a graph. Workflows can share it.
type Template struct {
	Specs []Spec `json:"s"`
	Nodes []Node `json:"n,omitempty"`
	Root  int    `json:"o,omitempty"`
	Subs  []Sub  `json:"u,omitempty"`

	// Computed by link.
	succs    [][]Edge
	members  [][]Edge // of an Each, along which each member's outcome goes
	need     []int
	passive  []bool
	class    []int // the first of those in a row that are alike
	failFast bool
	inputs   map[int]json.RawMessage // literals, at compile time only
}

// EdgeKind is the effect of an outcome on the node at the end of an edge.
type EdgeKind string

// The kinds of edges.
const (
	Need     EdgeKind = "need"    // success counts, failure skips
	Any      EdgeKind = "any"     // any outcome counts
	First    EdgeKind = "first"   // success is enough, failure is ignored
	Last     EdgeKind = "last"    // success is enough, failure skips
	Rescuer  EdgeKind = "rescue"  // any failure runs it
	Catcher  EdgeKind = "catch"   // a failure, but not a revocation, runs it, once for each cause
	OfMap    EdgeKind = "member"  // as Need, of a member to its map
	NoMap    EdgeKind = "no-map"  // a failure of a map itself, which then has no members, skips
	Replaces EdgeKind = "replace" // any outcome becomes the outcome of the planned node
)

// Edge leads from a node to one that its outcome decides on.
type Edge struct {
	To   int
	Kind EdgeKind
	Inst int // the instance of To it leads to; -1 for To itself, -2 for the instance of the source
}

// preds returns the nodes whose outcome n waits for, as references that may be virtual.
func (n *Node) preds() []int {
	out := append(slices.Clone(n.Args), n.After...)
	if n.In > 0 && len(n.Args) == 0 {
		out = append(out, n.In-1)
	}
	return out
}

// Preds returns the nodes whose outcome node i waits for; they may be virtual, and passive.
func (g *Graph) Preds(i int) []int { return g.Nodes[i].preds() }

// Result returns the nodes that the value of g needs, directly or not.
func (g *Graph) Result() map[int]bool { return walk(g.Preds, g.Root) }

// walk returns nodes, and all that next leads to from them, directly or not.
func walk(next func(int) []int, nodes ...int) map[int]bool {
	seen := map[int]bool{}
	for len(nodes) > 0 {
		i := nodes[len(nodes)-1]
		nodes = nodes[:len(nodes)-1]
		if !seen[i] {
			seen[i] = true
			nodes = append(nodes, next(i)...)
		}
	}
	return seen
}

// Class returns the first of the nodes around i whose success has the same effects as the success of i.
func (g *Graph) Class(i int) int { return g.class[i] }

// Ends returns the names of the first and of the last task on the way to the value of g; empty if there are none. Of
// parallel tasks, the one defined first counts.
func (g *Graph) Ends() (first, last string) {
	i := g.Root
	for range g.Nodes {
		n := &g.Nodes[i]
		if n.Kind == Task || n.Kind == Catch || n.Kind == Each {
			sp := &g.Specs[n.Spec]
			a, b := sp.Task, sp.Task
			if sp.Sub > 0 {
				a, b = g.Subs[sp.Sub-1].Graph.Ends()
			}
			first, last = cmp.Or(a, first), cmp.Or(last, b)
		}
		switch { // without a copy of the predecessors, of which a group has many
		case len(n.Args) > 0:
			i = n.Args[0]
		case len(n.After) > 0:
			i = n.After[0]
		case n.In > 0:
			i = n.In - 1
		default:
			return first, last
		}
	}
	return first, last
}

// Input returns the literal input of node i of a graph that was just compiled.
func (g *Graph) Input(i int) (json.RawMessage, bool) {
	raw, ok := g.inputs[i]
	return raw, ok
}

// SetInputs sets the literal inputs of a decoded graph, by node.
func (g *Graph) SetInputs(inputs map[int]json.RawMessage) { g.inputs = inputs }

// ForgetInputs drops the literal inputs.
func (g *Graph) ForgetInputs() { g.inputs = nil }

// Passive reports whether node i has no stored state: its users compute its value.
func (g *Graph) Passive(i int) bool { return g.passive[i] }

// Need returns how many outcomes node i waits for.
func (g *Graph) Need(i int) int { return g.need[i] }

// Succs returns the edges out of node i.
func (g *Graph) Succs(i int) []Edge { return g.succs[i] }

// Members returns the edges out of each member of the map i.
func (g *Graph) Members(i int) []Edge { return g.members[i] }

// Virtual reports whether no worker runs node i itself.
func (g *Graph) Virtual(i int) bool {
	k := g.Nodes[i].Kind
	return k != Task && k != Catch
}

// Count returns how many tasks and how many virtual nodes g has a state for from the start.
func (g *Graph) Count() (work, virtual int) {
	for i := range g.Nodes {
		switch {
		case g.passive[i] || g.Nodes[i].Kind == Catch:
		case g.Virtual(i):
			virtual++
		default:
			work++
		}
	}
	return work, virtual
}

// Roots returns the nodes that wait for nothing.
func (g *Graph) Roots() []int {
	var out []int
	for i := range g.Nodes {
		switch g.Nodes[i].Kind {
		case Catch, Or, EachEnded: // need does not count the outcomes that they wait for
			continue
		}
		if g.need[i] == 0 && !g.passive[i] {
			out = append(out, i)
		}
	}
	return out
}

// cannotSucceed returns node i and the nodes that can no longer succeed once it has failed.
func (g *Graph) cannotSucceed(i int) map[int]bool {
	return walk(func(k int) (out []int) {
		for _, e := range g.succs[k] {
			if e.Kind == Need {
				out = append(out, e.To)
			}
		}
		return out
	}, i)
}

// FailsFast reports whether a failure of a node of g may end others.
func (g *Graph) FailsFast() bool { return g.failFast }

// Doomers returns the nodes to revoke when node i has failed: the nodes of the fail-fast groups that it fails, except
// nodes that are needed by others and nodes that are skipped anyway.
func (g *Graph) Doomers(i int) []int {
	var out []int
	var failing map[int]bool
	for gi := range g.Nodes {
		n := &g.Nodes[gi]
		if n.Kind != List && n.Kind != Pair || !n.FailFast {
			continue
		}
		if failing == nil {
			failing = g.cannotSucceed(i)
		}
		if !slices.ContainsFunc(n.Args, func(a int) bool { return failing[a] }) {
			continue
		}
		others := walk(func(k int) []int {
			if o := &g.Nodes[k]; k == gi || (o.Kind == Outcomes || o.Kind == Catch) && slices.Equal(o.Args, n.Args) {
				return nil
			}
			return g.Preds(k)
		}, g.Root)
		for _, a := range n.Args {
			for k := range walk(g.Preds, a) {
				if !others[k] && !failing[k] && !g.passive[k] && g.Nodes[k].Kind != Catch {
					out = append(out, k)
				}
			}
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// Handles reports whether node i runs on failures or outcomes of other nodes: a task of Rescue or OnError, or one
// that receives the outcomes of Settle, unless there are none. A cancelled workflow still runs it.
func (g *Graph) Handles(i int) bool {
	if g.Nodes[i].Kind == Catch {
		return true
	}
	if g.need[i] == 0 {
		return false
	}
	for k := range walk(func(k int) []int {
		switch g.Nodes[k].Kind {
		case List, Pair, Permit:
			return g.Preds(k)
		}
		return nil
	}, g.Preds(i)...) {
		switch g.Nodes[k].Kind {
		case Outcomes, Wrap, EachEnded:
			return true
		}
	}
	return false
}
