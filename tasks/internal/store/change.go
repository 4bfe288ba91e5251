package store

import (
	"strings"
	"time"
)

// Edge leads from a node that ends to one that depends on its outcome, or to a span of nodes that depend on its success only.
type Edge struct {
	Node, Kind, Need, Delay, Lim, Lane string
}

// The outcomes of changes. The first four are states of nodes.
const (
	ChangeSucceed = string(StateSucceeded)
	ChangeFail    = string(StateFailed)
	ChangeRevoke  = string(StateRevoked)
	ChangeSkip    = string(StateSkipped)

	ChangeAgain  = "again"  // the node runs again
	ChangePlan   = "plan"   // a plan takes the place of the node
	ChangeExtend = "extend" // a map gets its members
	ChangeOpen   = "open"   // the node waits for an external result
	changeGuard  = "guard"  // the next changes are made only if a condition holds
)

// The flags of changes. A node follows the last two.
const (
	FlagStep        = "step"         // the nodes are steps, not tasks
	FlagMember      = "member"       // they are members of a map
	FlagPlanned     = "planned"      // nodes with a plan may end
	FlagDrop        = "drop"         // a success deletes their inputs, as for members
	FlagClear       = "clear"        // their last error, own progress and token are deleted
	FlagFailFast    = "fail-fast"    // their siblings may have to be revoked
	FlagExternal    = "external"     // they are completed externally
	FlagIfCancelled = "if-cancelled" // only while the workflow is cancelled
	FlagAfter       = "after="       // only once this node, the last of its plan, has ended
	FlagCause       = "cause="       // the cause of the skips that follow; a revocation happens only while this node has failed
)

// The states of a node that is to run again at a time.
const (
	AgainDelayed = string(StateDelayed)  // the attempt is not counted
	AgainRetry   = string(StateRetrying) // it failed

	AgainLimited   = string(StateLimited)   // it waits for a limit, as when delayed
	AgainUnhandled = string(StateUnhandled) // it waits for a handler, likewise
	AgainGathering = string(StateGathering) // it waits for others of its batch, likewise; see [Turn]
)

// Change is one change of several nodes of a workflow, which have the same edges. Its parts are the arguments of the
// script flow.
type Change struct {
	Outcome string
	Flags   []string
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

// Again adds a node that is to run again in d. Until then its state is [AgainDelayed] or [AgainRetry]. run is the run
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
		args = append(args, ch.Outcome, strings.Join(ch.Flags, " "), ch.Back, ch.Queue, ch.Task, len(ch.Edges))
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
	args := append(make([]any, 0, 10+2*len(g.Inputs)+4*len(g.Roots)), node, head, g.Graph, g.Work, g.Virtual, len(g.Inputs))
	args = append(literals(args, g.Inputs), len(g.Roots))
	return Change{Outcome: ChangePlan, Nodes: 1, Args: g.roots(args)}
}

// ExtendChange returns the change that adds n members to a map. steps: the members are steps, not tasks. joins lead to the joins over the members.
func ExtendChange(node string, n int, steps bool, r *Release, joins []Edge) Change {
	return Change{Outcome: ChangeExtend, Edges: joins, Nodes: 1, Args: []any{node, n, steps, r.Lane, r.Delay, r.Lim}}
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
	condition := "token"
	if open {
		condition = "open-token"
	}
	return Change{Outcome: changeGuard, Nodes: 1, Args: []any{node, condition, hash, call}}
}

// IfOpen makes the later changes conditional: the node must be open. call is as for [IfToken].
func IfOpen(node, call string) Change {
	return Change{Outcome: changeGuard, Nodes: 1, Args: []any{node, "open", "", call}}
}

// IfSignal makes the later changes conditional: the node of a task must be open, and the first signal that is kept for the task
// must have an ID. The signal is removed. call is as for [IfToken].
func IfSignal(node, task, id, call string) Change {
	return Change{Outcome: changeGuard, Task: task, Nodes: 1, Args: []any{node, "signal", id, call}}
}

// IfOverdue makes the later changes conditional: the node must be open, in an attempt whose deadline has passed.
func IfOverdue(node string, attempt int) Change {
	return Change{Outcome: changeGuard, Nodes: 1, Args: []any{node, "overdue", attempt, ""}}
}

// ifPlanned lets the changes after it happen only if the plan of a node is the one that was stored at a time.
func ifPlanned(node, planned string) Change {
	return Change{Outcome: changeGuard, Nodes: 1, Args: []any{node, "planned", planned, ""}}
}
