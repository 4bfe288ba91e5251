package store

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Turn is a call that stores results of nodes and takes other nodes.
type Turn struct {
	Shard  int
	Worker string
	ID     string // of the call
	Again  bool   // it may have been made before: its reply was lost

	// Batch is the list of the batch for which the node of the first of Done waits since this call. If the batch is complete, its nodes
	// are taken, at most Most, and nothing else is.
	Batch string

	Queues []Room // to take from, in order
	Entry  string // of the ring of the first queue, which the worker has taken; else empty
	Most   int    // nodes to take; 0 for none

	Done []NodeLease // they end
	Back []NodeLease // their nodes become ready again

	Lane string // nodes that the changes make ready in this lane are taken first; empty for none

	Changes []Changes
}

// Room is how many nodes may be taken from a queue.
type Room struct {
	Queue string
	Most  int
}

// The replies to a turn.
const (
	TurnOK     = "ok"
	TurnGone   = "gone"   // the worker does not have all leases of Done any more: nothing was changed or taken
	TurnPaused = "paused" // the queue of the entry is
)

// Turned is the reply to a [Turn].
type Turned struct {
	Status string
	Now    time.Time // by Redis
	Gone   []int     // of TurnGone: the leases of Done that the worker does not have
	Todos  []Todo
	Lane   string
	Taken  time.Time // when the nodes were taken, by Redis; before Now if the turn was made before
	Nodes  []Element
}

// Todo has the next steps of a workflow for the caller of a change.
type Todo struct {
	Ref   string        // of the workflow
	Ended bool          // it has ended
	Bad   string        // why it could not be changed, because its data is damaged; empty if it could
	Timer time.Duration // until the earliest time that a node was set to wait for; 0 if there is none
	Guard string        // result of a guard, as below; empty if there was none
	Run   []string      // ready nodes without a task
	Skips []string      // skipped nodes, whose dependents must be skipped too
	Plans []string      // planned nodes whose plan has ended
	Fast  []string      // failed nodes whose siblings must be revoked
	// Signalled are tasks with an open node and a signal for it.
	Signalled []string
	Next      string // reference of the workflow that waits for the end of this one; empty for none
}

// Make makes a turn. It can be repeated if its reply was lost: it then changes nothing more, and returns the nodes of the first call.
func (s Turns) Make(ctx context.Context, t *Turn) (*Turned, error) {
	flags := ""
	if t.Again {
		flags = "again"
	}
	entry := t.Entry
	if t.Batch != "" {
		entry, flags = s.batchKey(t.Shard, t.Batch), flags+" batch"
	}
	queues := make([]string, len(t.Queues))
	for i, r := range t.Queues {
		queues[i] = strconv.Itoa(r.Most) + ":" + r.Queue
	}
	args := make([]any, 0, 64)
	args = append(args, t.Worker, strings.Join(queues, " "), entry, flags, t.Most, t.ID, t.Lane, len(t.Done), len(t.Back))
	args = append(leaseArgs(leaseArgs(args, t.Done), t.Back), len(t.Changes))
	for i := range t.Changes {
		args = t.Changes[i].args(args)
	}
	res, err := s.call(ctx, "turn", t.Shard, args...)
	if err != nil {
		return nil, fmt.Errorf("take and finish nodes: %w", err)
	}
	return turned(t.Shard, res), nil
}

// BatchName returns the name of the list of the nodes of a task that wait in a lane for others with the same key.
func BatchName(lane, task, key string) string { return lane + " " + limitName(task, key) }

// Advance makes changes of nodes of which the caller has no leases. For an unknown workflow it does nothing. If a change
// is of nodes in a plan that Redis lost, it and the later ones are not made.
func (s Turns) Advance(ctx context.Context, c Changes) (*Turned, error) {
	var list []Change
	scope := ""
	for _, ch := range c.List {
		if ch.Scope != "" && ch.Scope != scope {
			list = append(list, ifPlanned(ch.Scope, ch.Planned))
			scope = ch.Scope
		}
		list = append(list, ch)
	}
	c.List = list
	args := make([]any, 0, 64)
	args = append(args, "", "", "", "direct", 0, "", "", 0, 0, 1)
	res, err := s.call(ctx, "turn", c.Flow.shard, c.args(args)...)
	if err != nil {
		return nil, fmt.Errorf("advance workflow %s: %w", c.Flow.ID(), err)
	}
	return turned(c.Flow.shard, res), nil
}

func turned(shard int, res []any) *Turned {
	out := &Turned{Status: text(res[0]), Now: time.UnixMilli(toInt(res[1]))}
	lane, at, _ := strings.Cut(text(res[3]), " ")
	out.Lane, out.Taken = lane, time.UnixMicro(toInt(at))
	todos, _ := res[2].([]any)
	for _, v := range todos {
		if out.Status == TurnGone {
			out.Gone = append(out.Gone, int(toInt(v)))
			continue
		}
		out.Todos = append(out.Todos, todo(v))
	}
	for _, v := range res[4:] {
		out.Nodes = append(out.Nodes, element(shard, v))
	}
	return out
}

func todo(v any) Todo {
	list, _ := v.([]any)
	if len(list) < 3 {
		return Todo{}
	}
	t := Todo{Ref: text(list[0]), Ended: toInt(list[1]) == 1}
	if toInt(list[1]) < 0 {
		t.Bad = text(list[2])
		return t
	}
	t.Timer = time.Duration(toInt(list[2])) * time.Millisecond
	lists := map[byte]*[]string{'+': &t.Run, '-': &t.Skips, '*': &t.Plans, '!': &t.Fast, '~': &t.Signalled}
	for _, v := range list[3:] {
		switch id := text(v); id[0] {
		case '>':
			t.Next = id[1:]
		case '=':
			t.Guard = id[1:]
		default:
			*lists[id[0]] = append(*lists[id[0]], id[1:])
		}
	}
	return t
}
