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

// Lane returns where ready nodes of a queue wait.
func Lane(queue string, priority int) string {
	if priority > 0 {
		return "h:" + queue
	}
	return "n:" + queue
}

// NoLane is that of nodes that no worker runs.
const NoLane = "-"

// Edge leads from a node that ends to one that its outcome decides on.
type Edge struct{ Node, Kind, Need, Delay, Lim, Lane string }

// The kinds of changes, beside the outcomes S, F, X and K that end nodes.
const (
	ChangeAgain  = "R" // to run again
	ChangePlan   = "P" // a plan takes the place of the node
	ChangeExtend = "E" // a map gets its members
)

// Change is what happens to nodes of a workflow that are alike.
type Change struct {
	Outcome string
	Flags   string
	Back    string // place to give back: "group holder", "group" if each node holds one, or ""
	Queue   string // for the counters, with Task and Ran; empty if it does not count
	Task    string
	Ran     time.Duration // of the handlers, together
	Edges   []Edge
	Nodes   int
	Args    []any // of the nodes
}

// End adds a node that ends to c, with its record or, behind "?", its body.
func (c *Change) End(node string, record []byte) {
	c.Nodes++
	c.Args = append(c.Args, node, record)
}

// Again adds a node that is to run again: in d, in state D or T until then.
func (c *Change) Again(node string, attempts, lost int, d time.Duration, state, lane, message string) {
	c.Nodes++
	c.Args = append(c.Args, node, attempts, lost, max(0, d.Milliseconds()), state, lane, message)
}

// Changes are those of a workflow.
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

// Turn is what a slot says to Redis between two batches.
type Turn struct {
	Shard  int
	Worker string
	Queue  string
	Others []string // queues that the worker serves, too

	Arrive  string // generation of the wake-task, when it has just come; else empty
	Counted bool   // the slot is counted among the takers of the queue
	Enter   bool   // it is from now on
	Take    bool
	Leave   bool // it takes no more
	OrLeave bool // if there is nothing to take
	Most    int  // nodes
	Least   int  // ready nodes that are worth another wake-task

	ID    string    // of the new batch
	Old   string    // the batch that ends, if there is one
	OldAt time.Time // when it was taken, by Redis
	Keep  string    // lease of what goes on under ID
	Back  string    // lease of what goes back
	Known []string
	Lane  string // the slot goes on with what becomes ready in it

	Changes []Changes
}

// The answers to a turn.
const (
	TurnOK    = "ok"
	TurnGone  = "gone"  // the batch was not the worker's any more: nothing of its changes was done
	TurnYield = "yield" // another queue has a wake-task: the slot is to leave
)

// Turned is the answer to a [Turn].
type Turned struct {
	Said  string
	Now   time.Time // by Redis
	Wants []Wake
	Todos []Todo
	Lane  string
	Taken time.Time // when the batch was, by Redis: before Now if this is a second answer
	Batch []Element
}

// Todo is what a change of a workflow set in motion, and its caller is to do: nodes to run that no worker runs, skips to pass on,
// planned nodes whose plan has ended, failed nodes whose siblings end with them. Ended says that the workflow has.
type Todo struct {
	ID    string
	Ended bool
	Bad   string    // why what Redis has of the workflow cannot be changed; empty if it can
	Timer time.Time // the earliest that was set; zero if none was
	Run   []string
	Skips []string
	Plans []string
	Fast  []string
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

// Turn makes a turn. It may be made again when its answer got lost.
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

// Advance makes changes that no batch stands behind. An unknown workflow has none to make.
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
		el, err := element(shard, v)
		if err != nil {
			return nil, err
		}
		out.Batch = append(out.Batch, el)
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

// maxSpan bounds the nodes of an element that is read.
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

// LeaseText returns the lease of nodes that were taken at a time from a lane.
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

// splitSpan returns what stands before the last number of a node, and that number.
func splitSpan(node string) (prefix string, n int) {
	from := strings.LastIndexAny(node, ".:") + 1
	n, _ = strconv.Atoi(node[from:])
	return node[:from], n
}
