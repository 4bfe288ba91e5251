package canvas

import (
	"time"

	"muster/tasks"
)

// Signature returns the signature of a canvas whose result is a number.
func (s *Scope) Signature() tasks.Signature[int] { return build(s).num(len(s.Defs) - 1) }

func (s *Scope) listSignature() tasks.Signature[[]int] { return build(s).seq(len(s.Defs) - 1) }

// Signatures returns the signatures of all definitions of a canvas whose result is a list, by their index.
func (s *Scope) Signatures() (map[int]tasks.Signature[int], map[int]tasks.Signature[[]int]) {
	b := build(s)
	b.seq(len(s.Defs) - 1)
	return b.ints, b.lists
}

// builder makes the signatures of the definitions of a canvas, each once.
type builder struct {
	s     *Scope
	ints  map[int]tasks.Signature[int]
	lists map[int]tasks.Signature[[]int]
}

func build(s *Scope) *builder {
	return &builder{s, map[int]tasks.Signature[int]{}, map[int]tasks.Signature[[]int]{}}
}

// boundTo is the constant that bound tasks get.
const boundTo = 5

// bodyOf returns the body of a mapfunc for an element.
func bodyOf(n tasks.Signature[int]) tasks.Signature[int] {
	return tasks.Chain(tasks.Join(tasks.Chain(n, pEach), tasks.Chain(tasks.Value(boundTo), pStep)), pPlus)
}

func (d *Def) callOptions() []tasks.CallOption {
	var out []tasks.CallOption
	if d.Delay > 0 {
		out = append(out, tasks.In(time.Duration(d.Delay)*time.Millisecond))
	}
	if d.Delay%2 == 1 && !d.Late {
		out = append(out, tasks.Expires(24*time.Hour))
	}
	if d.Queue != "" {
		out = append(out, tasks.Queue(d.Queue))
	}
	if d.Priority != 0 {
		out = append(out, tasks.Priority(d.Priority))
	}
	return out
}

func (d *Def) groupOptions() []tasks.GroupOption {
	var out []tasks.GroupOption
	if d.AtMost > 0 {
		out = append(out, tasks.AtMost(d.AtMost))
	}
	if d.Fast {
		out = append(out, tasks.FailFast())
	}
	return out
}

func (d *Def) eachOptions() []tasks.GroupOption {
	out := d.groupOptions()
	for _, o := range d.callOptions() {
		out = append(out, o)
	}
	return out
}

func (b *builder) num(i int) tasks.Signature[int] {
	if s, ok := b.ints[i]; ok {
		return s
	}
	d := &b.s.Defs[i]
	kid := func(k int) tasks.Signature[int] { return b.num(d.Kids[k]) }
	var s tasks.Signature[int]
	switch d.Kind {
	case "leaf":
		if d.Late {
			s = pLate.S(d.Ints[0], d.callOptions()...)
		} else {
			s = pLeaf.S(leafIn{d.Ints[0], d.Tries, d.Fail}, d.callOptions()...)
		}
	case "value":
		s = tasks.Value(d.Ints[0])
	case "bound":
		s = tasks.Chain(kid(0), tasks.Bind(pPlus, boundTo))
	case "step":
		s = tasks.Chain(kid(0), pStep, d.callOptions()...)
	case "ask":
		s = tasks.Chain(kid(0), pAsk, d.callOptions()...)
	case "hand":
		s = tasks.Chain(kid(0), pHand, d.callOptions()...)
	case "bad":
		s = tasks.Chain(kid(0), pBad)
	case "sum":
		s = tasks.Chord(b.seq(d.Kids[0]), pSum)
	case "plus":
		s = tasks.Chain(tasks.Join(kid(0), kid(1)), pPlus)
	case "count":
		s = tasks.Chord(tasks.Settle(b.seq(d.Kids[0])), pCount)
	case "try":
		s = tasks.Chain(tasks.Try(kid(0)), pTry)
	case "plan":
		s = pPlan.S(*d.Plan)
	case "rescue":
		s = kid(0).Rescue(pInstead)
	case "after":
		s = tasks.After(kid(0), pLeaf.S(leafIn{d.Ints[0], d.Tries, d.Fail}))
	case "success":
		s = tasks.OnSuccess(kid(0), pCb)
	case "error":
		s = tasks.OnError(kid(0), pEb)
	}
	b.ints[i] = s
	return s
}

func (b *builder) seq(i int) tasks.Signature[[]int] {
	if s, ok := b.lists[i]; ok {
		return s
	}
	d := &b.s.Defs[i]
	var s tasks.Signature[[]int]
	switch d.Kind {
	case "group":
		ms := make([]tasks.Signature[int], len(d.Kids))
		for k := range d.Kids {
			ms[k] = b.num(d.Kids[k])
		}
		s = tasks.Group(ms...).With(d.eachOptions()...)
	case "each":
		s = tasks.Each(d.Ints, pEach, d.eachOptions()...)
	case "map":
		s = tasks.Map(b.seq(d.Kids[0]), pEach, d.eachOptions()...)
	case "listvalue":
		s = tasks.Value(d.Ints)
	case "mapfunc":
		s = tasks.MapFunc(b.seq(d.Kids[0]), bodyOf).With(d.groupOptions()...)
	case "mapplan":
		s = tasks.Map(b.seq(d.Kids[0]), pMapPlan, d.eachOptions()...)
	case "listplan":
		s = pList.S(*d.Plan)
	case "listrescue":
		s = b.seq(d.Kids[0]).Rescue(pNone)
	case "listafter":
		s = tasks.After(b.num(d.Kids[0]), tasks.Each(d.Ints, pEach))
	case "listsuccess":
		s = tasks.OnSuccess(b.seq(d.Kids[0]), pListCb)
	case "listerror":
		s = tasks.OnError(b.seq(d.Kids[0]), pEb)
	}
	b.lists[i] = s
	return s
}
