package store

import "time"

// Edge leads from a node that ends to one that depends on its outcome, or to a span of nodes that depend on its success only.
type Edge struct{ Node, Kind, Need, Delay, Lim, Lane string }

// The outcomes of changes.
const (
	ChangeSucceed = "S" // the node ends, as in the three below
	ChangeFail    = "F"
	ChangeRevoke  = "X"
	ChangeSkip    = "K"

	ChangeAgain  = "R" // the node is to run again
	ChangePlan   = "P" // a plan takes the place of the node
	ChangeExtend = "E" // a map gets its members
	ChangeOpen   = "W" // the node waits for an external result
	changeGuard  = "G" // the next changes are made only if the node allows it
)

// The states of a node that is to run again at a time.
const (
	AgainDelayed = "D" // the attempt is not counted
	AgainRetry   = "T" // it failed
)

// Change is one change of several nodes of a workflow, which have the same edges. Its parts are the arguments of the
// script flow.
type Change struct {
	Outcome string
	Flags   string // see apply in flow.lua
	Scope   string // of the nodes
	Planned string // when their plan was stored; empty if they are in none
	Back    string // slot of a group to return: "group holder", "group" if each node holds one, or ""
	Queue   string // for the counters, with Task; empty if it does not count
	Task    string
	Edges   []Edge
	Nodes   int
	Args    []any // of the nodes
}

// End adds a node that ends to c, with its record or, after "?", its body.
func (c *Change) End(node string, record []byte) {
	c.Nodes++
	c.Args = append(c.Args, node, record)
}

// Again adds a node that is to run again in d. Until then its state is D, or T after a failure. run is the run
// that has ended, as [EncodeRun] returns it, or nil.
func (c *Change) Again(node string, attempts, lost int, d time.Duration, state, lane, message string, run []byte) {
	c.Nodes++
	c.Args = append(c.Args, node, attempts, lost, max(0, d.Milliseconds()), state, lane, message, run)
}

// Changes are changes of one workflow.
type Changes struct {
	Flow Flow
	List []Change
}

func (c *Changes) args(args []any) []any {
	args = c.Flow.facts(args)
	at := len(args)
	args = append(args, 0, len(c.List))
	for i := range c.List {
		ch := &c.List[i]
		args = append(args, ch.Outcome, ch.Flags, ch.Back, ch.Queue, ch.Task, len(ch.Edges))
		for _, e := range ch.Edges {
			args = append(args, e.Node, e.Kind, e.Need, e.Delay, e.Lim, e.Lane)
		}
		args = append(args, ch.Nodes)
		args = append(args, ch.Args...)
	}
	args[at] = len(args) - at - 1
	return args
}

// NoLane is the lane of nodes without a task.
const NoLane = "-"

// PlanChange returns the change that puts a graph in the place of a running node. head is the node's
// "attempts|deaths|started|worker".
func PlanChange(node, head string, g *Grow) Change {
	args := append(make([]any, 0, 10+2*len(g.Inputs)+4*len(g.Roots)), node, head, g.Graph, g.Work, g.Virtual, len(g.Inputs)+g.keeps())
	args = append(g.keep(literals(args, g.Inputs), node), len(g.Roots))
	return Change{Outcome: ChangePlan, Nodes: 1, Args: g.roots(args)}
}

// MapJoin is a join over the members of a map.
type MapJoin struct{ Node, Need, Delay, Lim, Lane string }

// ExtendChange returns the change that adds n members to a map. steps: the members are steps, not tasks.
func ExtendChange(node string, n int, steps bool, lane, delay, lim string, joins []MapJoin) Change {
	counter := "n"
	if steps {
		counter = "vn"
	}
	args := append(make([]any, 0, 7+5*len(joins)), node, n, counter, lane, delay, lim, len(joins))
	for _, j := range joins {
		args = append(args, j.Node, j.Need, j.Delay, j.Lim, j.Lane)
	}
	return Change{Outcome: ChangeExtend, Nodes: 1, Args: args}
}

// Open makes a node wait for an external result during an attempt, at most for limit if that is not 0.
func Open(task, node string, attempt int, limit time.Duration) Change {
	return Change{Outcome: ChangeOpen, Task: task, Nodes: 1, Args: []any{node, attempt, limit.Milliseconds()}}
}

// Extend moves the deadline of an open node, if it has one, to limit from now.
func Extend(task, node string, limit time.Duration) Change {
	return Change{Outcome: ChangeOpen, Task: task, Nodes: 1, Args: []any{node, "", limit.Milliseconds()}}
}

// IfToken makes the later changes conditional: the node must have the token with a hash and, with open, be open. call
// is an ID by which a retry is recognised; it may be empty.
func IfToken(node, hash string, open bool, call string) Change {
	how := "t"
	if open {
		how = "e"
	}
	return Change{Outcome: changeGuard, Nodes: 1, Args: []any{node, how, hash, call}}
}

// IfOverdue makes the later changes conditional: the node must be open, in an attempt whose deadline has passed.
func IfOverdue(node string, attempt int) Change {
	return Change{Outcome: changeGuard, Nodes: 1, Args: []any{node, "d", attempt, ""}}
}

// ifPlanned lets the changes after it happen only if the plan of a node is the one that was stored at a time.
func ifPlanned(node, planned string) Change {
	return Change{Outcome: changeGuard, Nodes: 1, Args: []any{node, "p", planned, ""}}
}
