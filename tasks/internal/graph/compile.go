package graph

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// ErrInvalid means that a signature cannot be sent.
var ErrInvalid = errors.New("invalid signature")

// MaxNodes bounds the graph of one send.
const MaxNodes = 200_000

type compiler struct {
	g     *Graph
	memo  map[*Sig]int
	specs map[specKey]int
	equal map[string]int // specs by their stored form
	bare  bool           // nodes are only placed: how they run does not matter
	inner map[*Sig]bool  // parts of the bodies of maps
	hole  *Sig           // of the body that is compiled
	side  map[int]bool   // nodes that no value needs: tasks of OnSuccess, and lists that are only settled

	sources []int // nodes that were added without predecessors; After removes nodes that it gives some
	oldest  int   // the first of the nodes that parts share with parts before them, since the last mark
}

// mark is a state of the compiler: later additions belong to the parts compiled later.
type mark struct{ nodes, sources, oldest int }

type specKey struct {
	task string
	base *Spec
	opts *Opts
}

func newCompiler() *compiler {
	return &compiler{g: &Graph{Template: Template{inputs: map[int]json.RawMessage{}}}, memo: map[*Sig]int{}, specs: map[specKey]int{}, equal: map[string]int{}, side: map[int]bool{}}
}

// Compile returns the graph of s. Two places that hold the same *Sig become one node.
func Compile(s *Sig) (*Graph, error) {
	c := newCompiler()
	if s != nil && s.Shape == Call { // one task needs no maps
		c.memo, c.specs = nil, nil
	}
	return c.compile(s)
}

func (c *compiler) compile(s *Sig) (*Graph, error) {
	root, err := c.node(s)
	if err != nil {
		return nil, err
	}
	c.g.Root = root
	if err := c.checkBodies(); err != nil {
		return nil, err
	}
	o, err := orderOf(c.g)
	if err != nil {
		return nil, err
	}
	if err := c.limit(o); err != nil {
		return nil, err
	}
	link(c.g)
	return c.g, nil
}

// Find returns the node of part in the graph that Compile makes of s. It does not depend on the options of a send.
func Find(s, part *Sig) (int, bool) {
	c := newCompiler()
	c.bare = true
	if _, err := c.node(s); err != nil {
		return 0, false
	}
	i, ok := c.memo[part]
	return i, ok
}

func (c *compiler) add(n Node) (int, error) {
	if len(c.g.Nodes) >= MaxNodes {
		return 0, fmt.Errorf("%w: more than %d nodes in one send; use Map over a list", ErrInvalid, MaxNodes)
	}
	i := len(c.g.Nodes)
	c.g.Nodes = append(c.g.Nodes, n)
	if n.In == 0 && len(n.Args) == 0 {
		c.sources = append(c.sources, i)
	}
	return i, nil
}

func (c *compiler) node(s *Sig) (int, error) {
	if s == nil {
		return 0, fmt.Errorf("%w: a zero Signature; build it with Task.S or a combinator", ErrInvalid)
	}
	if s.Err != nil {
		return 0, fmt.Errorf("%w: %w", ErrInvalid, s.Err)
	}
	if i, ok := c.memo[s]; ok {
		c.oldest = min(c.oldest, i)
		return i, nil
	}
	i, err := c.build(s)
	if err != nil {
		return 0, err
	}
	if c.memo != nil {
		c.memo[s] = i
	}
	return i, nil
}

func (c *compiler) build(s *Sig) (int, error) {
	if s.Shape == Call {
		spec, err := c.spec(s)
		if err != nil {
			return 0, err
		}
		i, err := c.add(Node{Spec: spec})
		if err == nil {
			c.g.inputs[i] = s.Input
		}
		return i, err
	}
	kids := make([]int, len(s.Kids))
	var last mark // before the last part
	for i, k := range s.Kids {
		outer := c.oldest
		last = mark{len(c.g.Nodes), len(c.sources), len(c.g.Nodes)}
		c.oldest = last.oldest
		n, err := c.node(k)
		if err != nil {
			return 0, err
		}
		kids[i], last.oldest = n, c.oldest
		c.oldest = min(outer, c.oldest)
	}
	switch s.Shape {
	case Chain, Chord, Map:
		spec, err := c.spec(s)
		if err != nil {
			return 0, err
		}
		n := Node{Spec: spec, In: kids[0] + 1}
		if s.Shape == Map {
			n.Kind, n.AtMost, n.FailFast = Each, s.Opts.AtMost, s.Opts.FailFast
		}
		return c.add(n)
	case MapFunc:
		return c.mapFunc(s, kids[0])
	case Value:
		if s.Input == nil && s != c.hole {
			return 0, fmt.Errorf("%w: the element of a MapFunc is used outside of its function; Join it with the input of the inner map", ErrInvalid)
		}
		return c.add(Node{Kind: Const, Value: s.Input})
	case Group, Join:
		kind, name := List, "group"
		if s.Shape == Join {
			kind, name = Pair, "join"
		}
		opts := s.Opts.Over(nil)
		if opts.Err != nil {
			return 0, fmt.Errorf("%w: %s: %w", ErrInvalid, name, opts.Err)
		}
		return c.add(Node{Kind: kind, Args: kids, AtMost: opts.AtMost, FailFast: opts.FailFast})
	case Settle:
		return c.settle(kids[0])
	case Try:
		return c.add(Node{Kind: Outcomes, Args: kids, Single: true})
	case After:
		return kids[1], c.after(kids[0], kids[1], last)
	case OnSuccess, OnError, Rescue:
		return c.callback(s, kids[0])
	}
	return 0, fmt.Errorf("%w: unknown shape %d", ErrInvalid, s.Shape)
}

// settle adds the outcomes of the members of a list.
func (c *compiler) settle(list int) (int, error) {
	switch v := c.g.Nodes[list]; v.Kind {
	case List:
		c.side[list] = true
		return c.add(Node{Kind: Outcomes, Args: v.Args, After: v.After})
	case Each:
		return c.add(Node{Kind: EachEnded, In: list + 1})
	default:
		return c.add(Node{Kind: Wrap, In: list + 1})
	}
}

// callback adds a task that runs on the value or the failure of a node. It returns the node that yields the value.
func (c *compiler) callback(s *Sig, of int) (int, error) {
	spec, err := c.spec(s)
	if err != nil {
		return 0, err
	}
	n := Node{Kind: Catch, Spec: spec, In: of + 1}
	switch s.Shape {
	case OnSuccess:
		i, err := c.add(Node{Spec: spec, In: of + 1})
		c.side[i] = true
		return of, err
	case OnError:
		if v := c.g.Nodes[of]; v.Kind == List {
			n.Args = v.Args
		}
		_, err := c.add(n)
		return of, err
	}
	rescuer, err := c.add(n)
	if err != nil {
		return 0, err
	}
	return c.add(Node{Kind: Or, Args: []int{of, rescuer}})
}

// maxTaskName is the longest name of a task, in bytes.
const maxTaskName = 100

// CheckTask returns an error if a string cannot be the name of a task.
func CheckTask(name string) error {
	switch {
	case name == "":
		return errors.New("a task without a name; declare it with tasks.New")
	case len(name) > maxTaskName:
		return fmt.Errorf("task name %.40q… has %d bytes; give tasks.New a name of at most %d bytes", name, len(name), maxTaskName)
	case !utf8.ValidString(name) || strings.ContainsFunc(name, unicode.IsControl):
		return fmt.Errorf("task name %q has a control character or is not UTF-8; give tasks.New a name without them", name)
	}
	return nil
}

// millis returns d in milliseconds, rounded up: 0 can mean that there is no limit.
func millis(d time.Duration) int64 { return (d + time.Millisecond - 1).Milliseconds() }

func (c *compiler) spec(s *Sig) (int, error) {
	if c.bare {
		return 0, nil
	}
	if err := CheckTask(s.Task); err != nil {
		return 0, fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	key := specKey{s.Task, s.Spec, s.Opts}
	if i, ok := c.specs[key]; ok {
		return i, nil
	}
	o := s.Opts.Over(nil)
	if o.Err != nil {
		return 0, fmt.Errorf("%w: task %s: %w", ErrInvalid, s.Task, o.Err)
	}
	if o.Timeout != nil && o.Hard != nil && *o.Hard > 0 && *o.Hard < *o.Timeout {
		return 0, fmt.Errorf("%w: task %s: option tasks.HardTimeout(%s) is below tasks.Timeout(%s); give a hard limit that is not below the soft one",
			ErrInvalid, s.Task, *o.Hard, *o.Timeout)
	}
	sp := Spec{Bind: o.Bind, External: o.External, Choices: o.Choices}
	if s.Spec != nil {
		sp = *s.Spec
	}
	sp.Task, sp.Queue = s.Task, cmp.Or(o.Queue, sp.Queue)
	if sp.Queue == "default" {
		sp.Queue = ""
	}
	if o.Priority != nil {
		sp.Priority = *o.Priority
	}
	if o.MaxRetry != nil {
		sp.MaxRetry = *o.MaxRetry
	}
	limit := func(d *time.Duration) *int64 {
		if d == nil {
			return nil
		}
		v := millis(*d)
		return &v
	}
	sp.Timeout, sp.Hard = cmp.Or(limit(o.Timeout), sp.Timeout), cmp.Or(limit(o.Hard), sp.Hard)
	if o.Backoff != nil {
		sp.Base, sp.Cap, sp.Fixed = millis(o.Backoff.Base), millis(o.Backoff.Cap), o.Backoff.Fixed
	}
	if o.In != nil {
		sp.In = millis(*o.In)
	}
	if o.At != nil {
		sp.At = o.At.UnixMilli()
	}
	if o.Expires != nil {
		sp.Expires = millis(*o.Expires)
	}
	if c.specs == nil {
		c.g.Specs = append(c.g.Specs, sp)
		return len(c.g.Specs) - 1, nil
	}
	raw, err := json.Marshal(sp)
	if err != nil {
		return 0, fmt.Errorf("%w: task %s: %w", ErrInvalid, s.Task, err)
	}
	i, ok := c.equal[string(raw)]
	if !ok {
		i = len(c.g.Specs)
		c.g.Specs = append(c.g.Specs, sp)
		c.equal[string(raw)] = i
	}
	c.specs[key] = i
	return i, nil
}

// after makes the first nodes of next wait for first, except nodes that first itself needs. at is the mark before next.
func (c *compiler) after(first, next int, at mark) error {
	if at.oldest >= at.nodes { // no part of next is in an earlier part, so its first nodes have no predecessors
		for _, i := range c.sources[at.sources:] {
			if len(c.g.Nodes[i].After) == 0 {
				c.gate(i, first)
			}
		}
		c.sources = c.sources[:at.sources]
		return nil
	}
	done, inside := walk(c.g.Preds, first), walk(c.g.Preds, next)
	for i := range inside {
		if done[i] {
			delete(inside, i)
		}
	}
	for i := range inside {
		if n := &c.g.Nodes[i]; n.Kind == Catch && done[n.In-1] {
			return fmt.Errorf("%w: After makes %s rescue its own dependency; move Rescue into the first part of After, or After into the rescued part",
				ErrInvalid, c.g.Specs[n.Spec].Task)
		}
	}
	for i := range inside {
		if !slices.ContainsFunc(c.g.Nodes[i].preds(), func(p int) bool { return inside[p] }) {
			c.gate(i, first)
		}
	}
	return nil
}

// gate makes node i wait for first.
func (c *compiler) gate(i, first int) {
	if n := &c.g.Nodes[i]; !slices.Contains(n.After, first) {
		n.After = append(slices.Clone(n.After), first)
	}
}

// Sub is a graph that every member of a map runs as its plan.
type Sub struct {
	Graph  *Graph                  `json:"g"`
	Hole   int                     `json:"h"` // the node whose value the element is; -1 if there is none
	Inputs map[int]json.RawMessage `json:"i,omitempty"`
}

// With returns the graph for an element, as if it was just compiled.
func (s *Sub) With(element json.RawMessage) *Graph {
	g := *s.Graph
	g.inputs = s.Inputs
	if s.Hole >= 0 {
		g.Nodes = slices.Clone(g.Nodes)
		g.Nodes[s.Hole].Value = element
	}
	return &g
}

// mapFunc adds a map over the node list that runs the body of s for each element.
func (c *compiler) mapFunc(s *Sig, list int) (int, error) {
	opts := s.Opts.Over(nil)
	if opts.Err != nil {
		return 0, fmt.Errorf("%w: MapFunc: %w", ErrInvalid, opts.Err)
	}
	body := newCompiler()
	body.g.V, body.bare, body.hole = Version, c.bare, s.Hole
	g, err := body.compile(s.Body)
	if err != nil {
		return 0, fmt.Errorf("body of a MapFunc: %w", err)
	}
	hole := -1
	if i, ok := body.memo[s.Hole]; ok {
		hole = i
	}
	if c.inner == nil {
		c.inner = map[*Sig]bool{}
	}
	maps.Copy(c.inner, body.inner)
	for part := range body.memo {
		c.inner[part] = true
	}
	c.g.Subs = append(c.g.Subs, Sub{Graph: g, Hole: hole, Inputs: g.inputs})
	c.g.Specs = append(c.g.Specs, Spec{Task: "(each)", Queue: firstQueue(g), Sub: len(c.g.Subs)})
	return c.add(Node{Kind: Each, Spec: len(c.g.Specs) - 1, In: list + 1, AtMost: opts.AtMost, FailFast: opts.FailFast})
}

// firstQueue returns the queue of the first task of g: its workers can start g.
func firstQueue(g *Graph) string {
	if len(g.Specs) == 0 {
		return ""
	}
	return g.Specs[0].Queue
}

// checkBodies returns an error if a part is used both in the body of a map and outside of it: it would be two nodes.
func (c *compiler) checkBodies() error {
	for part := range c.inner {
		if _, ok := c.memo[part]; ok && part.Shape != Value {
			return fmt.Errorf("%w: %s is used in a MapFunc and outside of it; Join it with the input of the map", ErrInvalid, part)
		}
	}
	return nil
}
