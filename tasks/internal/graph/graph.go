package graph

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Version is the version of the stored form of a [Graph]; the first one is not written, since every
// byte of a workflow of one task counts.
const Version = 0

// Kind says what a node is.
type Kind uint8

// The kinds of nodes. All but Task, Catch and the members of a Map are virtual: no worker runs them.
const (
	Task      Kind = iota // runs a handler
	List                  // the values of Args
	Pair                  // the values of two Args
	Outcomes              // what became of Args
	Wrap                  // the elements of In, as outcomes
	Or                    // the first of two Args that succeeded
	Each                  // a task for each element of In: a map
	EachEnded             // what became of the members of the map In
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
	Rel      int   `json:"r,omitempty"` // gives back a place of this group
	By       int   `json:"b,omitempty"` // the node that took the place, if not this
	AtMost   int   `json:"m,omitempty"`
	FailFast bool  `json:"q,omitempty"`
	Same     int   `json:"x,omitempty"` // so many more nodes like this follow
	Own      bool  `json:"o,omitempty"` // of a Catch: only a failure of In itself counts, not one of what In comes after

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
	RateN    int    `json:"rn,omitempty"`
	RatePer  int64  `json:"rp,omitempty"`
	External bool   `json:"x,omitempty"` // somebody outside answers in the place of a handler

	Bind []json.RawMessage `json:"w,omitempty"` // second halves of the input; the last one is added first
	Sub  int               `json:"u,omitempty"` // one more than the index of the graph that takes the place of the task
}

// QueueName returns the queue of s.
func (s *Spec) QueueName() string {
	if s.Queue == "" {
		return "default"
	}
	return s.Queue
}

// Graph is what a signature compiles to.
type Graph struct {
	V         int    `json:"v,omitempty"`
	Created   int64  `json:"c,omitempty"` // unix ms, by the sender's clock
	Retention int64  `json:"r,omitempty"` // ms; 0 is the default
	Progress  string `json:"p,omitempty"`
	Delay     int64  `json:"d,omitempty"` // ms, of all that can run at once
	At        int64  `json:"t,omitempty"` // unix ms, likewise
	Every     *Every `json:"e,omitempty"` // options of the send, for the tasks of plans
	Behind    int64  `json:"-"`           // ms from the time that durations count from to the send
	Specs     []Spec `json:"s"`
	Nodes     []Node `json:"n"`
	Root      int    `json:"o,omitempty"`
	Subs      []Sub  `json:"u,omitempty"`
	// Headers are what the sender wants every task to know.
	Headers map[string]string `json:"h,omitempty"`

	// Computed by link.
	succs    [][]Edge
	members  [][]Edge // of an Each, along which each member's outcome goes
	need     []int
	passive  []bool
	class    []int // the first of those in a row that are alike
	failFast bool
	inputs   map[int]json.RawMessage // literals, at compile time only
}

// EdgeKind says what an outcome does to the node at the end of an edge.
type EdgeKind byte

// The kinds of edges.
const (
	Need     EdgeKind = 'n' // success counts, failure skips
	Any      EdgeKind = 'a' // any outcome counts
	First    EdgeKind = 'o' // success is enough, failure is nothing
	Last     EdgeKind = 'h' // success is enough, failure skips
	Rescuer  EdgeKind = 'r' // any failure runs it
	Catcher  EdgeKind = 'e' // a failure that is no revocation runs it, once for each cause
	OwnCatch EdgeKind = 'l' // likewise, but only a failure of the node itself
	OfMap    EdgeKind = 'i' // as Need, of a member to its map
	Replaces EdgeKind = 'p' // any outcome is that of the planned node
)

// Edge leads from a node to one that its outcome decides on.
type Edge struct {
	To   int
	Kind EdgeKind
	Inst int // the instance of To it leads to; -1 for To itself, -2 for the instance of the source
}

// ErrInvalid says that a signature cannot be sent.
var ErrInvalid = errors.New("invalid signature")

// MaxNodes bounds the graph of one send.
const MaxNodes = 200_000

type compiler struct {
	g     *Graph
	memo  map[*Sig]int
	specs map[specKey]int
	bare  bool          // nodes are only placed: how they run does not matter
	inner map[*Sig]bool // what the bodies of maps are made of
	hole  *Sig          // of the body that is compiled
}

type specKey struct {
	task string
	opts *Opts
}

// Compile returns the graph of s. Two places that hold the same *Sig become one node.
func Compile(s *Sig) (*Graph, error) {
	c := &compiler{g: &Graph{inputs: map[int]json.RawMessage{}}}
	if s != nil && s.Shape != Call { // one task needs no maps
		c.memo, c.specs = map[*Sig]int{}, map[specKey]int{}
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
	if err := c.g.checkCycles(); err != nil {
		return nil, err
	}
	for i := range len(c.g.Nodes) {
		if n := &c.g.Nodes[i]; n.Kind == List && n.AtMost > 0 && n.AtMost < len(n.Args) {
			if err := c.limit(i); err != nil {
				return nil, err
			}
		}
	}
	c.g.link()
	return c.g, nil
}

// Find returns which node of the graph that Compile makes of s, under whatever options of a send, stands for part.
func Find(s, part *Sig) (int, bool) {
	c := &compiler{g: &Graph{inputs: map[int]json.RawMessage{}}, memo: map[*Sig]int{}, bare: true}
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
	c.g.Nodes = append(c.g.Nodes, n)
	return len(c.g.Nodes) - 1, nil
}

func (c *compiler) node(s *Sig) (int, error) {
	if s == nil {
		return 0, fmt.Errorf("%w: a zero Signature; build it with Task.S or a combinator", ErrInvalid)
	}
	if s.Err != nil {
		return 0, fmt.Errorf("%w: %w", ErrInvalid, s.Err)
	}
	if i, ok := c.memo[s]; ok {
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
		i, err := c.addTask(Node{Spec: spec}, s.Opts)
		if err == nil {
			c.g.inputs[i] = s.Input
		}
		return i, err
	}
	kids := make([]int, len(s.Kids))
	for i, k := range s.Kids {
		n, err := c.node(k)
		if err != nil {
			return 0, err
		}
		kids[i] = n
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
		return c.addTask(n, s.Opts)
	case MapFunc:
		return c.mapFunc(s, kids[0])
	case Value:
		if s.Input == nil && s != c.hole {
			return 0, fmt.Errorf("%w: the element of a MapFunc is used outside of its function; Join it with what an inner map goes over", ErrInvalid)
		}
		return c.add(Node{Kind: Const, Value: s.Input})
	case Group:
		opts := s.Opts.Over(nil)
		if opts.Err != nil {
			return 0, fmt.Errorf("%w: group: %w", ErrInvalid, opts.Err)
		}
		return c.add(Node{Kind: List, Args: kids, AtMost: opts.AtMost, FailFast: opts.FailFast})
	case Join:
		return c.add(Node{Kind: Pair, Args: kids})
	case Settle:
		return c.settle(kids[0])
	case After:
		return kids[1], c.after(kids[0], kids[1])
	case OnSuccess, OnError, Rescue:
		return c.callback(s, kids[0])
	}
	return 0, fmt.Errorf("%w: unknown shape %d", ErrInvalid, s.Shape)
}

// settle adds the outcomes of the members of a list.
func (c *compiler) settle(list int) (int, error) {
	switch v := c.g.Nodes[list]; v.Kind {
	case List:
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
		_, err := c.addTask(Node{Spec: spec, In: of + 1}, s.Opts)
		return of, err
	case OnError:
		if v := c.g.Nodes[of]; v.Kind == List {
			n.Args = v.Args
		}
		_, err := c.add(n)
		return of, err
	}
	rescuer, err := c.addTask(n, s.Opts)
	if err != nil {
		return 0, err
	}
	return c.add(Node{Kind: Or, Args: []int{of, rescuer}})
}

func (c *compiler) spec(s *Sig) (int, error) {
	if c.bare {
		return 0, nil
	}
	if s.Task == "" {
		return 0, fmt.Errorf("%w: a task without a name; declare it with tasks.New", ErrInvalid)
	}
	key := specKey{s.Task, s.Opts}
	if i, ok := c.specs[key]; ok {
		return i, nil
	}
	o := s.Opts.Over(nil)
	if o.Err != nil {
		return 0, fmt.Errorf("%w: task %s: %w", ErrInvalid, s.Task, o.Err)
	}
	sp := Spec{Task: s.Task, Queue: o.Queue}
	if sp.Queue == "default" {
		sp.Queue = ""
	}
	if o.Priority != nil {
		sp.Priority = *o.Priority
	}
	if o.MaxRetry != nil {
		sp.MaxRetry = *o.MaxRetry
	}
	ms := func(d *time.Duration) *int64 {
		if d == nil {
			return nil
		}
		v := d.Milliseconds()
		return &v
	}
	sp.Timeout, sp.Hard = ms(o.Timeout), ms(o.Hard)
	if o.Backoff != nil {
		sp.Base, sp.Cap, sp.Fixed = o.Backoff.Base.Milliseconds(), o.Backoff.Cap.Milliseconds(), o.Backoff.Fixed
	}
	if o.In != nil {
		sp.In = o.In.Milliseconds()
	}
	if o.At != nil {
		sp.At = o.At.UnixMilli()
	}
	if o.Expires != nil {
		sp.Expires = o.Expires.Milliseconds()
	}
	if o.Rate != nil {
		sp.RateN, sp.RatePer = o.Rate.N, o.Rate.Per.Milliseconds()
	}
	sp.Bind = o.Bind
	sp.External = o.External
	i := slices.IndexFunc(c.g.Specs, func(have Spec) bool { return reflect.DeepEqual(have, sp) })
	if i < 0 {
		c.g.Specs = append(c.g.Specs, sp)
		i = len(c.g.Specs) - 1
	}
	if c.specs != nil {
		c.specs[key] = i
	}
	return i, nil
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

// Result returns what the value of g is made from, directly or not.
func (g *Graph) Result() map[int]bool { return g.closure(g.Root) }

// closure returns from and what it needs.
func (g *Graph) closure(from int) map[int]bool { return g.reach(from, func(int) bool { return false }) }

// reach is closure, but does not look behind the nodes that stop.
func (g *Graph) reach(from int, stop func(int) bool) map[int]bool {
	seen := map[int]bool{}
	stack := []int{from}
	for len(stack) > 0 {
		i := stack[len(stack)-1]
		stack = stack[:len(stack)-1]
		if seen[i] {
			continue
		}
		seen[i] = true
		if !stop(i) {
			stack = append(stack, g.Nodes[i].preds()...)
		}
	}
	return seen
}

// after makes what next starts with wait for first, except for what first itself waits for.
func (c *compiler) after(first, next int) error {
	done := c.g.closure(first)
	inside := c.g.closure(next)
	for i := range inside {
		if done[i] {
			delete(inside, i)
		}
	}
	for i := range inside {
		if n := &c.g.Nodes[i]; n.Kind == Catch && done[n.In-1] {
			return fmt.Errorf("%w: After has %s rescue what it waits for itself; put Rescue into its first part, or After into the rescued one",
				ErrInvalid, c.g.Specs[n.Spec].Task)
		}
	}
	c.gate(inside, first)
	return nil
}

func (c *compiler) gate(inside map[int]bool, on int) {
	for i := range inside {
		n := &c.g.Nodes[i]
		if !slices.ContainsFunc(n.preds(), func(p int) bool { return inside[p] }) && !slices.Contains(n.After, on) {
			n.After = append(slices.Clone(n.After), on)
		}
	}
}

// users returns the nodes that need each node, as far as the result of g does.
func (g *Graph) users() map[int][]int {
	out := map[int][]int{}
	for i := range g.closure(g.Root) {
		for _, p := range g.Nodes[i].preds() {
			out[p] = append(out[p], i)
		}
	}
	return out
}

// limit lets members of group start only with one of its places. A member that is more than a task
// gets a permit before what it alone starts with. Who holds a place waits for nothing but what is its
// own: what others need too has no part in it and is there before the place is taken. Otherwise groups
// could wait for each other's places. What makes nothing run but a rescue of what others need takes none.
func (c *compiler) limit(group int) error {
	g := c.g
	users := g.users()
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
		g.spare(own)
		if len(own) == 0 {
			g.Nodes[m].Rel = 0
			continue
		}
		before, ended := g.outside(own)
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

// spare takes out of own what needs no place: rescues of what is not among own, and values of what is not.
func (g *Graph) spare(own map[int]bool) {
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

// outside returns what own needs of others, and of what it only needs the end.
func (g *Graph) outside(own map[int]bool) (before, ended []int) {
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

// Class returns the first of the nodes around i whose success does the same as that of i.
func (g *Graph) Class(i int) int { return g.class[i] }

// Name returns the name of the task whose value g yields or, if that is made of several, of the first of them.
func (g *Graph) Name() string {
	i := g.Root
	for range g.Nodes {
		n := &g.Nodes[i]
		if n.Kind == Task || n.Kind == Catch || n.Kind == Each {
			return g.Specs[n.Spec].Task
		}
		ps := n.preds()
		if len(ps) == 0 {
			break
		}
		i = ps[0]
	}
	return "(empty)"
}

func (g *Graph) checkCycles() error {
	left := make([]int, len(g.Nodes))
	next := make([][]int, len(g.Nodes))
	var queue []int
	for i := range g.Nodes {
		ps := g.Nodes[i].preds()
		left[i] = len(ps)
		for _, p := range ps {
			next[p] = append(next[p], i)
		}
		if len(ps) == 0 {
			queue = append(queue, i)
		}
	}
	seen := 0
	for len(queue) > 0 {
		i := queue[0]
		queue = queue[1:]
		seen++
		for _, n := range next[i] {
			if left[n]--; left[n] == 0 {
				queue = append(queue, n)
			}
		}
	}
	if seen < len(g.Nodes) {
		return fmt.Errorf("%w: parts wait for each other; look for two uses of After in opposite order", ErrInvalid)
	}
	return nil
}

// Encode returns the stored form of g.
func (g *Graph) Encode() ([]byte, error) {
	raw, err := json.Marshal(g.packed())
	if err != nil {
		return nil, fmt.Errorf("encode graph: %w", err)
	}
	return raw, nil
}

// packed returns g with rows of equal nodes as one.
func (g *Graph) packed() *Graph {
	c := *g
	c.Subs = slices.Clone(g.Subs)
	for i := range c.Subs {
		c.Subs[i].Graph = c.Subs[i].Graph.packed()
	}
	c.Nodes = nil
	for _, n := range g.Nodes {
		n.Ranges = ranges(n.Args)
		n.Args = nil
		if k := len(c.Nodes); k > 0 {
			same := c.Nodes[k-1]
			same.Same = 0
			if n.Kind == Task && n.equal(&same) {
				c.Nodes[k-1].Same++
				continue
			}
		}
		c.Nodes = append(c.Nodes, n)
	}
	return &c
}

// equal reports whether two packed nodes are the same.
func (n *Node) equal(o *Node) bool {
	return n.Kind == o.Kind && n.Spec == o.Spec && n.In == o.In && n.Lim == o.Lim && n.Rel == o.Rel && n.By == o.By && n.AtMost == o.AtMost &&
		n.FailFast == o.FailFast && n.Same == o.Same && slices.Equal(n.Ranges, o.Ranges) && slices.Equal(n.After, o.After) && slices.Equal(n.Args, o.Args) &&
		n.Own == o.Own && bytes.Equal(n.Value, o.Value)
}

// VersionError is the error of a stored form of another version than [Version].
type VersionError struct{ V int }

// Error implements error.
func (e *VersionError) Error() string {
	return fmt.Sprintf("graph has version %d, this program knows %d: run senders and workers of one release", e.V, Version)
}

// Decode returns the graph that raw is the stored form of; a [VersionError] if that is of another version.
// Whatever raw is, a graph that is returned without an error can be used without harm.
func Decode(raw []byte) (*Graph, error) {
	g := &Graph{}
	if err := json.Unmarshal(raw, g); err != nil {
		return nil, fmt.Errorf("decode graph: %w", err)
	}
	if g.V != Version {
		return nil, &VersionError{g.V}
	}
	if err := g.unpack(); err != nil {
		return nil, fmt.Errorf("decode graph: %w", err)
	}
	if err := g.check(); err != nil {
		return nil, fmt.Errorf("decode graph: %w", err)
	}
	g.link()
	return g, nil
}

// unpack turns the stored nodes into those of the graph.
func (g *Graph) unpack() error {
	for i := range g.Subs {
		if g.Subs[i].Graph == nil {
			return fmt.Errorf("graph %d is missing", i)
		}
		if err := g.Subs[i].Graph.unpack(); err != nil {
			return err
		}
	}
	packed := g.Nodes
	all := len(packed)
	for _, n := range packed {
		all += min(max(n.Same, 0), MaxNodes)
	}
	g.Nodes = make([]Node, 0, min(all, MaxNodes))
	args := 0
	for _, n := range packed {
		same := n.Same
		if same < 0 || same >= MaxNodes-len(g.Nodes) {
			return fmt.Errorf("more than %d nodes", MaxNodes)
		}
		n.Same = 0
		var err error
		if n.Args, err = unranges(n.Ranges, maxArgs-args); err != nil {
			return err
		}
		args += len(n.Args) * (same + 1)
		n.Ranges = nil
		for range same + 1 {
			g.Nodes = append(g.Nodes, n)
		}
	}
	return nil
}

func ranges(args []int) []int {
	var out []int
	for _, a := range args {
		if k := len(out); k > 0 && out[k-2]+out[k-1] == a {
			out[k-1]++
			continue
		}
		out = append(out, a, 1)
	}
	return out
}

func unranges(rs []int, most int) ([]int, error) {
	var out []int
	for i := 0; i+1 < len(rs); i += 2 {
		if rs[i+1] > most-len(out) {
			return nil, fmt.Errorf("more than %d references between nodes", maxArgs)
		}
		for k := range rs[i+1] {
			out = append(out, rs[i]+k)
		}
	}
	return out, nil
}

// Input returns the literal input of node i of a graph that was just compiled.
func (g *Graph) Input(i int) (json.RawMessage, bool) {
	raw, ok := g.inputs[i]
	return raw, ok
}

// ForgetInputs lets go of the literal inputs.
func (g *Graph) ForgetInputs() { g.inputs = nil }

// Passive reports whether node i is only a value: it has no state of its own.
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
		case Catch, Or, EachEnded: // they wait for what need does not count
			continue
		}
		if g.need[i] == 0 && !g.passive[i] {
			out = append(out, i)
		}
	}
	return out
}

// Doomed returns what cannot succeed any more once node i has failed, i included.
func (g *Graph) Doomed(i int) map[int]bool {
	seen := map[int]bool{i: true}
	stack := []int{i}
	for len(stack) > 0 {
		k := stack[len(stack)-1]
		stack = stack[:len(stack)-1]
		for _, e := range g.succs[k] {
			if e.Kind == Need && !seen[e.To] {
				seen[e.To] = true
				stack = append(stack, e.To)
			}
		}
	}
	return seen
}

// FailsFast reports whether a failure of a node of g may end others.
func (g *Graph) FailsFast() bool { return g.failFast }

// Doomers returns what to revoke when node i has failed: what the fail-fast groups that it ends are
// made of, but for what others need too and for what is skipped anyway.
func (g *Graph) Doomers(i int) []int {
	var out []int
	var doomed map[int]bool
	for gi := range g.Nodes {
		n := &g.Nodes[gi]
		if n.Kind != List || !n.FailFast {
			continue
		}
		if doomed == nil {
			doomed = g.Doomed(i)
		}
		if !slices.ContainsFunc(n.Args, func(a int) bool { return doomed[a] }) {
			continue
		}
		others := g.reach(g.Root, func(k int) bool {
			o := &g.Nodes[k]
			return k == gi || (o.Kind == Outcomes || o.Kind == Catch) && slices.Equal(o.Args, n.Args)
		})
		for _, a := range n.Args {
			for k := range g.closure(a) {
				if !others[k] && !doomed[k] && !g.passive[k] && g.Nodes[k].Kind != Catch {
					out = append(out, k)
				}
			}
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// ID names a node of a workflow: the scope of the plan it belongs to, its index there and, in a map
// or a catch over many, its instance.
type ID struct {
	Scope string // id of the planned node; empty at the top
	Index int
	Inst  int // -1 for none
}

// ParseID reads the string form.
func ParseID(s string) (ID, error) {
	id := ID{Inst: -1}
	local := s
	if k := strings.LastIndexByte(s, ':'); k >= 0 {
		id.Scope, local = s[:k], s[k+1:]
	}
	index, inst, ok := strings.Cut(local, ".")
	var err error
	if id.Index, err = strconv.Atoi(index); err != nil || id.Index < 0 {
		return id, fmt.Errorf("node id %q: expected an index", s)
	}
	if ok {
		if id.Inst, err = strconv.Atoi(inst); err != nil || id.Inst < 0 {
			return id, fmt.Errorf("node id %q: expected an instance", s)
		}
	}
	return id, nil
}

// String returns the form that ParseID reads.
func (id ID) String() string {
	s := strconv.Itoa(id.Index)
	if id.Scope != "" {
		s = id.Scope + ":" + s
	}
	if id.Inst >= 0 {
		s += "." + strconv.Itoa(id.Inst)
	}
	return s
}

// At returns the id of another node of the same scope.
func (id ID) At(index, inst int) ID { return ID{id.Scope, index, inst} }
