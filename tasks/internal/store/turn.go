package store

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Wake is a wake-task: it says that a queue has ready nodes in a shard.
type Wake struct {
	Shard int
	Queue string
	Gen   string // its generation, as the scripts count it
}

func wakes(shard int, said any) []Wake {
	list, _ := said.([]any)
	var out []Wake
	for i := 0; i+1 < len(list); i += 2 {
		out = append(out, Wake{shard, text(list[i]), text(list[i+1])})
	}
	return out
}

// Lane returns the lane in which ready nodes of a queue and priority wait.
func Lane(queue string, priority int) string {
	if priority > 0 {
		return "h:" + queue
	}
	return "n:" + queue
}

// NoLane is the lane of nodes without a task.
const NoLane = "-"

// Edge leads from a node that ends to one that depends on its outcome.
type Edge struct{ Node, Kind, Need, Delay, Lim, Lane string }

// The outcomes of changes, beside S, F, X and K, which end nodes.
const (
	ChangeAgain  = "R" // the node is to run again
	ChangePlan   = "P" // a plan takes the place of the node
	ChangeExtend = "E" // a map gets its members
	ChangeOpen   = "W" // the node waits for an answer from outside
	changeGuard  = "G" // what follows is done only if the node lets it
)

// Change is one change of several nodes of a workflow, which have the same edges. Its parts are those of the script
// flow.
type Change struct {
	Outcome string
	Flags   string // see apply in flow.lua
	Back    string // place to give back: "group holder", "group" if each node holds one, or ""
	Queue   string // for the counters, with Task and Ran; empty if it does not count
	Task    string
	Ran     time.Duration // how long the handlers ran, together
	Edges   []Edge
	Nodes   int
	Args    []any // of the nodes
}

// End adds a node that ends to c, with its record or, behind "?", its body.
func (c *Change) End(node string, record []byte) {
	c.Nodes++
	c.Args = append(c.Args, node, record)
}

// Again adds a node that is to run again in d. Until then its state is D, or T after a failure.
func (c *Change) Again(node string, attempts, lost int, d time.Duration, state, lane, message string) {
	c.Nodes++
	c.Args = append(c.Args, node, attempts, lost, max(0, d.Milliseconds()), state, lane, message)
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
		args = append(args, ch.Outcome, ch.Flags, ch.Back, ch.Queue, ch.Task, ch.Ran.Milliseconds(), len(ch.Edges))
		for _, e := range ch.Edges {
			args = append(args, e.Node, e.Kind, e.Need, e.Delay, e.Lim, e.Lane)
		}
		args = append(args, ch.Nodes)
		args = append(args, ch.Args...)
	}
	args[at] = len(args) - at - 1
	return args
}

// Turn is what a slot does in Redis between two batches: it ends one and takes the next.
type Turn struct {
	Shard  int
	Worker string
	Queue  string
	Others []string // the other queues of the worker

	Arrive  string // generation of the wake-task, when it has just come; else empty
	Counted bool   // the slot is counted among those that come back for more
	Enter   bool   // it is counted from now on
	Take    bool   // take a batch
	Leave   bool   // the slot is not counted any more
	OrLeave bool   // likewise, if there is nothing to take
	Most    int    // nodes to take
	Least   int    // ready nodes that are worth another wake-task

	ID    string    // of the new batch
	Old   string    // the batch that ends, if there is one
	OldAt time.Time // when it was taken, by Redis
	Keep  string    // lease of the nodes of Old that go on under ID; empty for none
	Back  string    // lease of the nodes of Old that become ready again; empty for none
	Known []string  // workflows whose graphs the worker has
	Lane  string    // nodes that the changes make ready in this lane are taken first; empty for none

	Changes []Changes
}

// The answers to a turn.
const (
	TurnOK    = "ok"
	TurnGone  = "gone"  // the worker does not have the batch any more: none of its changes was made
	TurnYield = "yield" // another queue has a wake-task: the slot must end
)

// Turned is the answer to a [Turn].
type Turned struct {
	Said  string
	Now   time.Time // by Redis
	Wants []Wake
	Todos []Todo
	Lane  string
	Taken time.Time // when the batch was taken, by Redis; before Now if the turn was made before
	Batch []Element
}

// Todo is what the caller of a change is to do next for its workflow.
type Todo struct {
	ID    string    // of the workflow
	Ended bool      // it has ended
	Bad   string    // why it could not be changed, because its data is damaged; empty if it could
	Timer time.Time // the earliest time that a node was set to wait for; zero if there is none
	Said  string    // by a guard, as below; empty if there was none
	Run   []string  // ready nodes without a task
	Skips []string  // skipped nodes; those that need them are to be skipped too
	Plans []string  // planned nodes whose plan has ended
	Fast  []string  // failed nodes whose siblings are to be revoked
}

// Element is a part of a batch: nodes of a workflow.
type Element struct {
	Flow    Flow // with the id only
	Text    string
	Lost    int
	Graph   []byte // nil if the worker has it
	Nodes   []string
	Records [][]byte
}

// Turn makes a turn. It may be made again when its answer was lost: it then changes nothing and has the same answer.
func (s *Store) Turn(ctx context.Context, t *Turn) (*Turned, error) {
	flags := ""
	flag := func(on bool, f string) {
		if on {
			flags += f
		}
	}
	flag(t.Arrive != "", "a")
	flag(t.Counted, "c")
	flag(t.Enter, "e")
	flag(t.Take, "t")
	flag(t.Leave, "l")
	flag(t.OrLeave, "x")
	old := ""
	if t.Old != "" {
		old = t.Old + "@" + strconv.FormatInt(t.OldAt.UnixMilli(), 10)
	}
	known := ""
	if len(t.Known) > 0 {
		known = " " + strings.Join(t.Known, " ") + " "
	}
	args := make([]any, 0, 64)
	args = append(args, t.Worker, t.Queue, strings.Join(t.Others, " "), flags, t.Most, max(1, t.Least), t.ID, old, t.Keep, t.Back, known,
		t.Arrive, t.Lane, len(t.Changes))
	for i := range t.Changes {
		args = t.Changes[i].args(args)
	}
	res, err := s.call(ctx, "turn", t.Shard, args...)
	if err != nil {
		return nil, fmt.Errorf("take and finish nodes: %w", err)
	}
	return turned(t.Shard, res)
}

// Advance makes changes of nodes that are in no batch of the caller. For an unknown workflow it does nothing.
func (s *Store) Advance(ctx context.Context, c Changes) (*Turned, error) {
	args := make([]any, 0, 64)
	args = append(args, "", "", "", "u", 0, 1, "", "", "", "", "", "", "", 1)
	res, err := s.call(ctx, "turn", c.Flow.shard, c.args(args)...)
	if err != nil {
		return nil, fmt.Errorf("advance workflow %s: %w", c.Flow.ID, err)
	}
	return turned(c.Flow.shard, res)
}

func turned(shard int, res []any) (*Turned, error) {
	if len(res) < 5 {
		return nil, fmt.Errorf("script answered %v", res)
	}
	out := &Turned{Said: text(res[0]), Now: time.UnixMilli(toInt(res[1])), Wants: wakes(shard, res[2])}
	lane, at, _ := strings.Cut(text(res[4]), " ")
	out.Lane, out.Taken = lane, time.UnixMilli(toInt(at))
	todos, _ := res[3].([]any)
	for _, v := range todos {
		out.Todos = append(out.Todos, todo(v))
	}
	for _, v := range res[5:] {
		if el, err := element(shard, v); err == nil { // nobody can read the others
			out.Batch = append(out.Batch, el)
		}
	}
	return out, nil
}

func todo(v any) Todo {
	list, _ := v.([]any)
	if len(list) < 3 {
		return Todo{}
	}
	t := Todo{ID: text(list[0]), Ended: toInt(list[1]) == 1}
	if toInt(list[1]) < 0 {
		t.Bad = text(list[2])
		return t
	}
	if at := toInt(list[2]); at > 0 {
		t.Timer = time.UnixMilli(at)
	}
	for _, v := range list[3:] {
		switch id := text(v); {
		case strings.HasPrefix(id, "+"):
			t.Run = append(t.Run, id[1:])
		case strings.HasPrefix(id, "-"):
			t.Skips = append(t.Skips, id[1:])
		case strings.HasPrefix(id, "*"):
			t.Plans = append(t.Plans, id[1:])
		case strings.HasPrefix(id, "!"):
			t.Fast = append(t.Fast, id[1:])
		case strings.HasPrefix(id, "="):
			t.Said = id[1:]
		}
	}
	return t
}

var errElement = errors.New("script answered an element that cannot be read")

// element reads {element, graph or false, record or false of each node}.
func element(shard int, v any) (Element, error) {
	list, _ := v.([]any)
	if len(list) < 2 {
		return Element{}, errElement
	}
	el, err := ParseElement(shard, text(list[0]))
	if err != nil {
		return el, err
	}
	if g := text(list[1]); g != "" {
		el.Graph = []byte(g)
	}
	el.Records = make([][]byte, len(el.Nodes))
	for i, rec := range list[2:] {
		if raw := text(rec); raw != "" && i < len(el.Nodes) {
			el.Records[i] = []byte(raw)
		}
	}
	return el, nil
}

// maxSpan bounds the nodes of an element, which may be damaged.
const maxSpan = 1 << 20

// ParseElement reads an element of a ready list or a lease, "<workflow>/<span>[@deaths]".
func ParseElement(shard int, s string) (Element, error) {
	id, span, ok := strings.Cut(s, "/")
	if !ok {
		return Element{}, fmt.Errorf("%w: %.100q", errElement, s)
	}
	el := Element{Flow: Flow{ID: id, shard: shard}, Text: s}
	span, lost, _ := strings.Cut(span, "@")
	el.Lost = int(toInt(lost))
	dash := strings.LastIndexByte(span, '-')
	if dash < 0 {
		el.Nodes = []string{span}
		return el, nil
	}
	from := strings.LastIndexAny(span[:dash], ".:") + 1
	prefix := span[:from]
	first, err := strconv.Atoi(span[from:dash])
	last, err2 := strconv.Atoi(span[dash+1:])
	if err != nil || err2 != nil || last < first || last-first >= maxSpan {
		return Element{}, fmt.Errorf("%w: %.100q", errElement, s)
	}
	el.Nodes = make([]string, 0, last-first+1)
	for i := first; i <= last; i++ {
		el.Nodes = append(el.Nodes, prefix+strconv.Itoa(i))
	}
	return el, nil
}

// Held is a node of a batch.
type Held struct {
	Flow string
	Node string
	Lost int
}

// LeaseText returns the text of a lease of nodes that were taken at a time from a lane.
func LeaseText(at time.Time, lane string, nodes []Held) string {
	var b strings.Builder
	b.WriteString(strconv.FormatInt(at.UnixMilli(), 10) + " " + lane + " ")
	for i := 0; i < len(nodes); {
		if i > 0 {
			b.WriteByte(',')
		}
		n := nodes[i]
		prefix, first := splitSpan(n.Node)
		j := i + 1
		for j < len(nodes) && nodes[j].Flow == n.Flow && nodes[j].Lost == n.Lost {
			if p, k := splitSpan(nodes[j].Node); p != prefix || k != first+j-i {
				break
			}
			j++
		}
		b.WriteString(n.Flow + "/" + n.Node)
		if j > i+1 {
			b.WriteString("-" + strconv.Itoa(first+j-i-1))
		}
		if n.Lost > 0 {
			b.WriteString("@" + strconv.Itoa(n.Lost))
		}
		i = j
	}
	return b.String()
}

// splitSpan returns the id of a node up to its last number, and that number.
func splitSpan(node string) (prefix string, n int) {
	from := strings.LastIndexAny(node, ".:") + 1
	n, _ = strconv.Atoi(node[from:])
	return node[:from], n
}
