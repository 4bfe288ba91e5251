// Package canvas generates random workflows of all combinators, computes the result that each must have, and has the
// handlers of their tasks. Tests of the engine run them and compare.
package canvas

import (
	"math/rand/v2"
	"slices"
)

// Scope is a canvas: definitions that use earlier ones, the last of which is its result. A definition
// used twice is one signature used twice.
type Scope struct{ Defs []Def }

// Def is one combinator. Its values are numbers and lists of numbers.
type Def struct {
	Kind   string
	Kids   []int  `json:",omitempty"` // earlier definitions
	Ints   []int  `json:",omitempty"` // literals
	Fail   bool   `json:",omitempty"` // of a leaf
	Tries  int    `json:",omitempty"` // failed attempts before the one that counts
	AtMost int    `json:",omitempty"`
	Delay  int    `json:",omitempty"` // ms
	Fast   bool   `json:",omitempty"` // FailFast
	Late   bool   `json:",omitempty"` // of a leaf: it expires before it has a value
	Plan   *Scope `json:",omitempty"`

	// Of a leaf, a step, an each or a map; Draw leaves them as they are.
	Queue    string `json:",omitempty"`
	Priority int    `json:",omitempty"`
}

// list reports whether d yields a list.
func (d *Def) list() bool {
	switch d.Kind {
	case "group", "each", "map", "mapfunc", "listvalue", "mapplan", "listplan", "listrescue", "listafter", "listsuccess", "listerror":
		return true
	}
	return false
}

// callback reports whether d adds a task to another definition.
func (d *Def) callback() bool {
	switch d.Kind {
	case "success", "error", "listsuccess", "listerror":
		return true
	}
	return false
}

// Source is where the choices of a canvas come from.
type Source interface {
	// Int returns a number from lo to hi; label names the choice.
	Int(lo, hi int, label string) int
}

// Seeded returns a source of choices that are the same for the same seed.
func Seeded(seed uint64) Source { return seeded{rand.New(rand.NewPCG(seed, 0))} }

type seeded struct{ *rand.Rand }

// Int implements Source.
func (s seeded) Int(lo, hi int, _ string) int { return lo + s.IntN(hi-lo+1) }

// kinds are the kinds that Draw chooses from; repetition raises the probability of the common ones.
var kinds = []string{"listsuccess", "listerror", "leaf", "step", "step", "bad", "sum", "sum", "plus", "plus", "count", "try", "plan", "rescue", "after", "success", "error",
	"group", "group", "group", "each", "map", "map", "mapfunc", "value", "bound", "listvalue", "mapplan", "listplan", "listrescue", "listafter"}

// Draw returns a random canvas whose result is a number, with plans nested to the given depth. In one of four, groups are
// nested in members of groups, and every group has an AtMost.
func Draw(src Source, depth int) *Scope { return draw(src, depth, false) }

// DrawList returns a random canvas whose result is a list of any kind.
func DrawList(src Source, depth int) *Scope {
	s := draw(src, depth, true)
	var lists []int
	for i := range s.Defs {
		if s.Defs[i].list() {
			lists = append(lists, i)
		}
	}
	s.Defs = s.Defs[:lists[src.Int(0, len(lists)-1, "result")]+1]
	return s
}

func draw(src Source, depth int, list bool) *Scope {
	p := &painter{Source: src, s: &Scope{}, depth: depth}
	p.add(p.leaf("leaf"))
	p.add(Def{Kind: "each", Ints: p.few()})
	p.fast = p.Int(0, 3, "fast") == 0
	if p.Int(0, 3, "limited") == 0 {
		if group := p.nestGroup(3); !list {
			p.add(Def{Kind: "sum", Kids: []int{group}})
		}
		return p.s
	}
	for range p.Int(1, 12, "definitions") {
		p.grow(kinds[p.Int(0, len(kinds)-1, "kind")])
	}
	if list {
		p.grow("group")
	} else {
		p.grow("plus")
	}
	return p.s
}

// painter draws one canvas.
type painter struct {
	Source
	s          *Scope
	depth      int
	fast       bool  // groups may fail fast
	nums, seqs []int // definitions that yield a number, a list
}

func (p *painter) add(d Def) {
	if d.list() {
		p.seqs = append(p.seqs, len(p.s.Defs))
	} else {
		p.nums = append(p.nums, len(p.s.Defs))
	}
	p.s.Defs = append(p.s.Defs, d)
}

func (p *painter) num() int { return p.nums[p.Int(0, len(p.nums)-1, "number")] }
func (p *painter) seq() int { return p.seqs[p.Int(0, len(p.seqs)-1, "list")] }

func (p *painter) few() []int {
	ints := make([]int, p.Int(0, 4, "length"))
	for i := range ints {
		ints[i] = p.Int(0, 6, "n")
	}
	return ints
}

func (p *painter) leaf(kind string) Def {
	return Def{Kind: kind, Ints: []int{p.Int(0, 6, "n")}, Fail: p.Int(0, 5, "fail") == 0, Tries: max(0, p.Int(-4, 2, "tries"))}
}

func (p *painter) atMost() int { return max(0, p.Int(-3, 2, "at most")) }
func (p *painter) delay() int  { return max(0, p.Int(-6, 3, "delay")) }

// grow adds a definition of a kind.
func (p *painter) grow(kind string) {
	d := Def{Kind: kind}
	switch kind {
	case "leaf":
		d = p.leaf(kind)
		d.Delay, d.Late = p.delay(), p.Int(0, 9, "late") == 0
	case "listvalue":
		d.Ints = p.few()
	case "value":
		d.Ints = []int{p.Int(0, 6, "n")}
	case "step":
		d.Kids, d.Delay = []int{p.num()}, p.delay()
	case "bad", "rescue", "success", "error", "bound", "try":
		d.Kids = []int{p.num()}
	case "after":
		d = p.leaf(kind)
		d.Kids = []int{p.num()}
	case "sum", "count", "listrescue", "listsuccess", "listerror":
		d.Kids = []int{p.seq()}
	case "map", "mapplan", "mapfunc":
		d.Kids, d.AtMost = []int{p.seq()}, p.atMost()
	case "plus":
		d.Kids = []int{p.num(), p.num()}
	case "plan", "listplan":
		if p.depth == 0 {
			return
		}
		d.Plan = draw(p.Source, p.depth-1, kind == "listplan")
	case "group":
		for range p.Int(0, 4, "members") {
			d.Kids = append(d.Kids, p.num())
		}
		d.AtMost = p.atMost()
	case "each":
		d.Ints, d.AtMost = p.few(), p.atMost()
	case "listafter":
		d.Kids, d.Ints = []int{p.num()}, p.few()
	}
	if p.fast && slices.Contains([]string{"group", "each", "map", "mapplan", "mapfunc"}, kind) {
		d.Fast = p.Int(0, 1, "fail fast") == 1
	}
	p.add(d)
	if d.callback() && p.Int(0, 2, "twice") == 0 {
		p.add(Def{Kind: kind, Kids: []int{len(p.s.Defs) - 1}})
	}
}

// nestKinds are the kinds that nest chooses from.
var nestKinds = []string{"sum", "sum", "sum", "count", "plus", "step", "step", "bad", "rescue", "try", "after", "success", "error"}

// nest adds a number built mostly from new definitions, and returns its index.
func (p *painter) nest(depth int) int {
	if p.Int(0, 5, "shared") == 0 {
		return p.num()
	}
	d := Def{Kind: "leaf"}
	if depth > 0 {
		d.Kind = nestKinds[p.Int(0, len(nestKinds)-1, "kind")]
	}
	switch d.Kind {
	case "leaf":
		d = p.leaf(d.Kind)
	case "sum", "count":
		d.Kids = []int{p.nestGroup(depth)}
	case "plus":
		d.Kids = []int{p.nest(depth - 1), p.nest(depth - 1)}
	case "after":
		d = p.leaf(d.Kind)
		d.Kids = []int{p.nest(depth - 1)}
	default:
		d.Kids = []int{p.nest(depth - 1)}
	}
	p.add(d)
	return len(p.s.Defs) - 1
}

// nestGroup adds a limited group with members of nest, and returns it.
func (p *painter) nestGroup(depth int) int {
	d := Def{Kind: "group", AtMost: p.Int(1, 2, "at most")}
	for range p.Int(1, 4, "members") {
		d.Kids = append(d.Kids, p.nest(depth-1))
	}
	d.Fast = p.fast && p.Int(0, 1, "fail fast") == 1
	p.add(d)
	return len(p.s.Defs) - 1
}

// mapPlan returns the plan of a planner for one element of a list.
func mapPlan(n int) *Scope {
	switch few := []int{n, n + 1, n + 2}; n % 5 {
	case 1:
		return &Scope{[]Def{{Kind: "leaf", Ints: []int{n}, Fail: true}, {Kind: "rescue", Kids: []int{0}}, {Kind: "step", Kids: []int{1}}}}
	case 2:
		return &Scope{[]Def{{Kind: "each", Ints: few}, {Kind: "listrescue", Kids: []int{0}}, {Kind: "map", Kids: []int{1}, AtMost: 1}, {Kind: "count", Kids: []int{2}}}}
	case 3:
		return &Scope{[]Def{{Kind: "each", Ints: few}, {Kind: "listerror", Kids: []int{0}}, {Kind: "sum", Kids: []int{1}}}}
	case 4:
		return &Scope{[]Def{{Kind: "plan", Plan: &Scope{[]Def{{Kind: "leaf", Ints: []int{n}, Tries: 1}, {Kind: "success", Kids: []int{0}}}}}}}
	}
	return &Scope{[]Def{{Kind: "leaf", Ints: []int{n}, Fail: n%4 == 2}, {Kind: "step", Kids: []int{0}}}}
}
