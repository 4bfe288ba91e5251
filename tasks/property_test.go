package tasks_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"muster/tasks"
	"muster/tasks/redistest"
)

// scope is a canvas: definitions that use earlier ones, the last of which is its result. A definition
// used twice is one signature used twice.
type scope struct{ Defs []def }

// def is one combinator. Numbers and lists of numbers are all that flows.
type def struct {
	Kind   string
	Kids   []int  `json:",omitempty"` // earlier definitions
	Ints   []int  `json:",omitempty"` // literals
	Fail   bool   `json:",omitempty"` // of a leaf
	Tries  int    `json:",omitempty"` // failed attempts before the one that counts
	AtMost int    `json:",omitempty"`
	Delay  int    `json:",omitempty"` // ms
	Fast   bool   `json:",omitempty"` // FailFast
	Late   bool   `json:",omitempty"` // of a leaf: expired before it is sent
	Plan   *scope `json:",omitempty"`
}

// lists are the kinds that yield a list.
var lists = []string{"group", "each", "map", "mapplan", "listplan", "listrescue", "listafter", "listsuccess", "listerror"}

func (d *def) list() bool { return slices.Contains(lists, d.Kind) }

// leafIn is the input of a leaf.
type leafIn struct {
	N, Tries int
	Fail     bool
}

// mapIn is the failure of a member of a map: those with this remainder.
const badRemainder = 3

var (
	pLeaf    = tasks.New[leafIn, int]("p.leaf", tasks.MaxRetry(3), tasks.ConstantBackoff(time.Millisecond))
	pStep    = tasks.New[int, int]("p.step")
	pBad     = tasks.New[int, int]("p.bad")
	pSum     = tasks.New[[]int, int]("p.sum")
	pPlus    = tasks.New[tasks.Pair[int, int], int]("p.plus")
	pCount   = tasks.New[[]tasks.Outcome[int], int]("p.count")
	pEach    = tasks.New[int, int]("p.each")
	pPlan    = tasks.New[scope, int]("p.plan")
	pList    = tasks.New[scope, []int]("p.listplan")
	pMapPlan = tasks.New[int, int]("p.mapplan")
	pInstead = tasks.New[tasks.Failure, int]("p.instead")
	pNone    = tasks.New[tasks.Failure, []int]("p.none")
	pCb      = tasks.New[int, int]("p.cb")
	pEb      = tasks.New[tasks.Failure, int]("p.eb")
	pListCb  = tasks.New[[]int, int]("p.listcb")
)

// build returns the signature of definition i.
type builder struct {
	s     *scope
	ints  map[int]tasks.Signature[int]
	lists map[int]tasks.Signature[[]int]
}

func build(s *scope) *builder {
	return &builder{s, map[int]tasks.Signature[int]{}, map[int]tasks.Signature[[]int]{}}
}

func (b *builder) opts(d *def) []tasks.Option {
	var out []tasks.Option
	if d.AtMost > 0 {
		out = append(out, tasks.AtMost(d.AtMost))
	}
	if d.Delay > 0 {
		out = append(out, tasks.In(time.Duration(d.Delay)*time.Millisecond))
	}
	if d.Fast {
		out = append(out, tasks.FailFast())
	}
	if d.Late {
		out = append(out, tasks.Expires(-time.Second))
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
		s = pLeaf.S(leafIn{d.Ints[0], d.Tries, d.Fail}, b.opts(d)...)
	case "step":
		s = tasks.Chain(kid(0), pStep, b.opts(d)...)
	case "bad":
		s = tasks.Chain(kid(0), pBad)
	case "sum":
		s = tasks.Chord(b.seq(d.Kids[0]), pSum)
	case "plus":
		s = tasks.Chain(tasks.Join(kid(0), kid(1)), pPlus)
	case "count":
		s = tasks.Chord(tasks.Settle(b.seq(d.Kids[0])), pCount)
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
		s = tasks.Group(ms...).With(b.opts(d)...)
	case "each":
		s = tasks.Each(d.Ints, pEach, b.opts(d)...)
	case "map":
		s = tasks.Map(b.seq(d.Kids[0]), pEach, b.opts(d)...)
	case "mapplan":
		s = tasks.Map(b.seq(d.Kids[0]), pMapPlan, b.opts(d)...)
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

// result is what the reference says that a definition comes to: a value, or one of some failures.
type result struct {
	n       int
	list    []int
	members []result // of a list with members
	causes  map[string]bool
	own     *int // of what failed by itself: which one it is
}

// expiry is the message of what expired.
const expiry = "not begun before it expired"

func (r *result) failed() bool { return len(r.causes) > 0 }

// told reports whether callbacks for errors hear of a failure: they do not of what expired, and where
// several failures came together, it depends on which was first.
func (r *result) told() (surely, maybe bool) {
	return r.failed() && !r.causes[expiry], r.failed() && (!r.causes[expiry] || len(r.causes) > 1)
}

func failure(message string) result {
	return result{causes: map[string]bool{message: true}, own: new(int)}
}

func behind(rs ...result) result {
	out := result{causes: map[string]bool{}}
	for _, r := range rs {
		maps.Copy(out.causes, r.causes)
	}
	return out
}

// reference evaluates a scope and counts the runs of each task.
type reference struct {
	s    *scope
	runs runs
	done map[int]result
	seen map[string]bool // callbacks of nodes
}

// runs is how often tasks run; those of loose may run so many times more.
type runs struct {
	sure, loose map[string]int
	fast        *bool // a group has ended the rest of itself because one failed: anything may have been part of it
}

func newRuns() runs { return runs{map[string]int{}, map[string]int{}, new(bool)} }

func evaluate(s *scope, runs runs) result {
	r := &reference{s, runs, map[int]result{}, map[string]bool{}}
	return r.eval(len(s.Defs) - 1)
}

// node returns the definition that adds the node that i stands for.
func (r *reference) node(i int) int {
	for slices.Contains([]string{"success", "error", "listsuccess", "listerror"}, r.s.Defs[i].Kind) {
		i = r.s.Defs[i].Kids[0]
	}
	return i
}

func (r *reference) each(n int) result {
	r.runs.sure["p.each"]++
	if n%4 == badRemainder {
		return failure(fmt.Sprint("each ", n))
	}
	return result{n: n + 1}
}

func gather(members []result) result {
	out := behind(members...)
	out.members = members
	out.list = []int{}
	for _, m := range members {
		out.list = append(out.list, m.n)
	}
	return out
}

func (r *reference) eval(i int) result {
	if res, ok := r.done[i]; ok {
		return res
	}
	res := r.one(&r.s.Defs[i], i)
	if r.s.Defs[i].Fast && res.failed() {
		*r.runs.fast = true
	}
	r.done[i] = res
	return res
}

func (r *reference) one(d *def, i int) result {
	kids := make([]result, len(d.Kids))
	for k, kid := range d.Kids {
		kids[k] = r.eval(kid)
	}
	task := func(name string, value func() result) result {
		if all := behind(kids...); all.failed() {
			return all
		}
		r.runs.sure[name]++
		return value()
	}
	leaf := func() result {
		if d.Late {
			r.runs.sure["p.leaf"]--
			return failure(expiry)
		}
		r.runs.sure["p.leaf"] += d.Tries
		if d.Fail {
			return failure(fmt.Sprint("leaf ", d.Ints[0]))
		}
		return result{n: d.Ints[0]}
	}
	switch d.Kind {
	case "leaf", "after":
		return task("p.leaf", leaf)
	case "step":
		return task("p.step", func() result { return result{n: kids[0].n + 1} })
	case "bad":
		return task("p.bad", func() result { return failure(fmt.Sprint("bad ", kids[0].n)) })
	case "sum":
		return task("p.sum", func() result { return result{n: sum(kids[0].list)} })
	case "plus":
		return task("p.plus", func() result { return result{n: kids[0].n + kids[1].n} })
	case "count":
		return r.count(kids[0])
	case "plan", "listplan":
		r.runs.sure[map[string]string{"plan": "p.plan", "listplan": "p.listplan"}[d.Kind]]++
		res := evaluate(d.Plan, r.runs)
		res.members = nil
		return res
	case "rescue", "listrescue":
		kids[0].members = nil
		if !kids[0].failed() {
			return kids[0]
		}
		if d.Kind == "rescue" {
			r.runs.sure["p.instead"]++
			return result{n: -1}
		}
		r.runs.sure["p.none"]++
		return result{list: []int{}}
	case "success", "error":
		name := map[string]string{"success": "p.cb", "error": "p.eb"}[d.Kind]
		key := fmt.Sprint(name, r.node(i))
		surely, maybe := kids[0].told()
		if d.Kind == "success" {
			surely = !kids[0].failed()
			maybe = surely
		}
		if !r.seen[key] {
			r.seen[key] = true
			r.tally(name, surely, maybe)
		}
		return kids[0]
	case "listsuccess", "listerror":
		key := fmt.Sprint(d.Kind, r.node(i))
		if r.seen[key] {
			return kids[0]
		}
		r.seen[key] = true
		if d.Kind == "listsuccess" {
			if !kids[0].failed() {
				r.runs.sure["p.listcb"]++
			}
			return kids[0]
		}
		of := kids[0].members
		if of == nil {
			of = kids[:1]
		}
		heard := map[*int]bool{}
		any, sure := false, 0
		for k := range of {
			surely, maybe := of[k].told()
			if own := of[k].own; own != nil && heard[own] {
				continue
			} else if own != nil {
				heard[own] = true
			}
			switch {
			case surely && of[k].own != nil:
				sure++
			case maybe:
				any = any || surely
				r.runs.loose["p.eb"]++
			}
		}
		if sure == 0 && any {
			sure = 1
			r.runs.loose["p.eb"]--
		}
		r.runs.sure["p.eb"] += sure
		return kids[0]
	case "group":
		return gather(kids)
	case "each", "listafter":
		if all := behind(kids...); all.failed() {
			if len(d.Ints) == 0 {
				return all
			}
			return gather(slices.Repeat([]result{all}, len(d.Ints)))
		}
		members := make([]result, len(d.Ints))
		for k, n := range d.Ints {
			members[k] = r.each(n)
		}
		return gather(members)
	case "map", "mapplan":
		if kids[0].failed() {
			return behind(kids[0])
		}
		members := make([]result, len(kids[0].list))
		for k, n := range kids[0].list {
			if d.Kind == "map" {
				members[k] = r.each(n)
				continue
			}
			r.runs.sure["p.mapplan"]++
			members[k] = evaluate(mapPlan(n), r.runs)
		}
		return gather(members)
	}
	panic(d.Kind)
}

// tally counts one run of a task.
func (r *reference) tally(name string, surely, maybe bool) {
	switch {
	case surely:
		r.runs.sure[name]++
	case maybe:
		r.runs.loose[name]++
	}
}

func (r *reference) count(of result) result {
	members := of.members
	if members == nil {
		if of.failed() {
			return behind(of)
		}
		for _, n := range of.list {
			members = append(members, result{n: n})
		}
	}
	out := result{}
	for _, m := range members {
		if m.failed() {
			out.n += 1000
		} else {
			out.n += m.n
		}
	}
	r.runs.sure["p.count"]++
	return out
}

// mapPlan is what a planner answers for one element of a list.
func mapPlan(n int) *scope {
	switch few := []int{n, n + 1, n + 2}; n % 5 {
	case 1:
		return &scope{[]def{{Kind: "leaf", Ints: []int{n}, Fail: true}, {Kind: "rescue", Kids: []int{0}}, {Kind: "step", Kids: []int{1}}}}
	case 2:
		return &scope{[]def{{Kind: "each", Ints: few}, {Kind: "listrescue", Kids: []int{0}}, {Kind: "map", Kids: []int{1}, AtMost: 1}, {Kind: "count", Kids: []int{2}}}}
	case 3:
		return &scope{[]def{{Kind: "each", Ints: few}, {Kind: "listerror", Kids: []int{0}}, {Kind: "sum", Kids: []int{1}}}}
	case 4:
		return &scope{[]def{{Kind: "plan", Plan: &scope{[]def{{Kind: "leaf", Ints: []int{n}, Tries: 1}, {Kind: "success", Kids: []int{0}}}}}}}
	}
	return &scope{[]def{{Kind: "leaf", Ints: []int{n}, Fail: n%4 == 2}, {Kind: "step", Kids: []int{0}}}}
}

// drawScope makes up a canvas whose result is a number or a list.
func drawScope(t *rapid.T, depth int, list bool) *scope {
	s := &scope{}
	var nums, seqs []int
	few := rapid.SliceOfN(rapid.IntRange(0, 6), 0, 4)
	add := func(d def) {
		if d.list() {
			seqs = append(seqs, len(s.Defs))
		} else {
			nums = append(nums, len(s.Defs))
		}
		s.Defs = append(s.Defs, d)
	}
	leaf := func(kind string) def {
		return def{Kind: kind, Ints: []int{rapid.IntRange(0, 6).Draw(t, "n")}, Fail: rapid.IntRange(0, 5).Draw(t, "fail") == 0,
			Tries: max(0, rapid.IntRange(-4, 2).Draw(t, "tries"))}
	}
	num := func() int { return rapid.SampledFrom(nums).Draw(t, "number") }
	seq := func() int { return rapid.SampledFrom(seqs).Draw(t, "list") }
	add(leaf("leaf"))
	add(def{Kind: "each", Ints: few.Draw(t, "ints")})
	fast := rapid.IntRange(0, 3).Draw(t, "fast") == 0
	kinds := []string{"listsuccess", "listerror", "leaf", "step", "step", "bad", "sum", "sum", "plus", "plus", "count", "plan", "rescue", "after", "success", "error",
		"group", "group", "group", "each", "map", "map", "mapplan", "listplan", "listrescue", "listafter"}
	grow := func(kind string) {
		d := def{Kind: kind}
		switch kind {
		case "leaf":
			d = leaf(kind)
			d.Delay = max(0, rapid.IntRange(-6, 3).Draw(t, "delay"))
			d.Late = rapid.IntRange(0, 9).Draw(t, "late") == 0
		case "step", "bad", "rescue", "success", "error":
			d.Kids = []int{num()}
			if kind == "step" {
				d.Delay = max(0, rapid.IntRange(-6, 3).Draw(t, "delay"))
			}
		case "after":
			d = leaf(kind)
			d.Kids = []int{num()}
		case "sum", "count", "map", "mapplan", "listrescue", "listsuccess", "listerror":
			d.Kids = []int{seq()}
			if kind == "map" || kind == "mapplan" {
				d.AtMost = max(0, rapid.IntRange(-3, 2).Draw(t, "at most"))
			}
		case "plus":
			d.Kids = []int{num(), num()}
		case "plan", "listplan":
			if depth == 0 {
				return
			}
			d.Plan = drawScope(t, depth-1, kind == "listplan")
		case "group":
			for range rapid.IntRange(0, 4).Draw(t, "members") {
				d.Kids = append(d.Kids, num())
			}
			d.AtMost = max(0, rapid.IntRange(-2, 2).Draw(t, "at most"))
		case "each":
			d.Ints = few.Draw(t, "ints")
			d.AtMost = max(0, rapid.IntRange(-3, 2).Draw(t, "at most"))
		case "listafter":
			d.Kids, d.Ints = []int{num()}, few.Draw(t, "ints")
		}
		if fast && slices.Contains([]string{"group", "each", "map", "mapplan"}, kind) {
			d.Fast = rapid.Bool().Draw(t, "fail fast")
		}
		add(d)
	}
	for range rapid.IntRange(1, 12).Draw(t, "definitions") {
		grow(rapid.SampledFrom(kinds).Draw(t, "kind"))
	}
	if list {
		grow("group")
	} else {
		grow("plus")
	}
	return s
}

// propWorld counts the runs of each node.
type propWorld struct {
	mu   sync.Mutex                // guards runs
	runs map[string]map[string]int // workflow, "task node"
}

func (p *propWorld) ran(ctx context.Context) {
	i := tasks.InfoFrom(ctx)
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.runs[i.Workflow] == nil {
		p.runs[i.Workflow] = map[string]int{}
	}
	p.runs[i.Workflow][i.Task+" "+i.Node]++
}

func (p *propWorld) mux() *tasks.Mux {
	m := tasks.NewMux()
	m.Use(func(ctx context.Context, _ tasks.Info, next func(context.Context) error) error {
		p.ran(ctx)
		return next(ctx)
	})
	handleProp(m)
	return m
}

func handleProp(m *tasks.Mux) {
	tasks.Handle(m, pLeaf, func(ctx context.Context, in leafIn) (int, error) {
		switch {
		case tasks.InfoFrom(ctx).Attempt <= in.Tries:
			return 0, errors.New("once more")
		case in.Fail:
			return 0, tasks.Permanent(fmt.Errorf("leaf %d", in.N))
		}
		return in.N, nil
	})
	tasks.Handle(m, pStep, func(_ context.Context, n int) (int, error) { return n + 1, nil })
	tasks.Handle(m, pBad, func(_ context.Context, n int) (int, error) { return 0, fmt.Errorf("bad %d", n) })
	tasks.Handle(m, pSum, func(_ context.Context, ns []int) (int, error) { return sum(ns), nil })
	tasks.Handle(m, pPlus, func(_ context.Context, p tasks.Pair[int, int]) (int, error) { return p.First + p.Second, nil })
	tasks.Handle(m, pCount, func(_ context.Context, os []tasks.Outcome[int]) (int, error) {
		n := 0
		for _, o := range os {
			if o.Err != nil {
				n += 1000
			} else {
				n += o.Value
			}
		}
		return n, nil
	})
	tasks.Handle(m, pEach, func(_ context.Context, n int) (int, error) {
		if n%4 == badRemainder {
			return 0, fmt.Errorf("each %d", n)
		}
		return n + 1, nil
	})
	tasks.HandlePlan(m, pPlan, func(_ context.Context, s scope) (tasks.Signature[int], error) {
		return build(&s).num(len(s.Defs) - 1), nil
	})
	tasks.HandlePlan(m, pList, func(_ context.Context, s scope) (tasks.Signature[[]int], error) {
		return build(&s).seq(len(s.Defs) - 1), nil
	})
	tasks.HandlePlan(m, pMapPlan, func(_ context.Context, n int) (tasks.Signature[int], error) {
		s := mapPlan(n)
		return build(s).num(len(s.Defs) - 1), nil
	})
	tasks.Handle(m, pInstead, func(context.Context, tasks.Failure) (int, error) { return -1, nil })
	tasks.Handle(m, pNone, func(context.Context, tasks.Failure) ([]int, error) { return nil, nil })
	tasks.Handle(m, pCb, func(_ context.Context, n int) (int, error) { return n, nil })
	tasks.Handle(m, pEb, func(context.Context, tasks.Failure) (int, error) { return 0, nil })
	tasks.Handle(m, pListCb, func(context.Context, []int) (int, error) { return 0, nil })
}

// Whatever combinators are put together, the workflow comes to what a plain evaluation of them says, and
// every task runs as often as that says: once where it is reached, and not at all behind a failure. Where a
// group ends with its first failure, or all is revoked on the way, it depends on the moment what still
// runs; each node ends all the same, and runs at most once.
func TestAnyCanvas(t *testing.T) {
	t.Parallel()
	w := &world{client: tasks.NewClient(redistest.New(t))}
	prop := &propWorld{runs: map[string]map[string]int{}}
	worker, err := tasks.NewWorker(w.client, prop.mux(), tasks.WorkerConfig{Grace: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	during(t, worker.Run)
	rapid.Check(t, func(rt *rapid.T) {
		s := drawScope(rt, 2, false)
		stop := rapid.IntRange(-20, 9).Draw(rt, "revoked after so many tasks")
		want := newRuns()
		res := evaluate(s, want)
		ctx, cancel := context.WithTimeout(t.Context(), waitLimit)
		defer cancel()
		run, err := build(s).num(len(s.Defs)-1).Send(ctx, w.client)
		if err != nil {
			rt.Fatalf("send: %v", err)
		}
		defer func() {
			if rt.Failed() {
				raw, _ := json.Marshal(s)
				rt.Logf("%s", raw)
			}
		}()
		revoked := false
		for p, err := range run.Watch(ctx) {
			if err != nil {
				rt.Fatalf("%v at %+v\n%s", err, p, tree(t, w, run.ID()))
			}
			if stop >= 0 && p.Done >= stop && !revoked {
				revoked = true
				if err := run.Revoke(ctx); err != nil {
					rt.Fatal(err)
				}
			}
		}
		got, err := run.Wait(ctx)
		nodes, nerr := w.client.Nodes(ctx, run.ID())
		if nerr != nil {
			rt.Fatal(nerr)
		}
		for _, n := range nodes {
			if !n.Status.Terminal() {
				rt.Errorf("node %s is %s", n.ID, n.Status)
			}
		}
		loose := revoked || *want.fast
		var f *tasks.Failure
		switch {
		case errors.As(err, &f):
			if !loose && !res.causes[f.Message] {
				rt.Errorf("failed with %q, want %d or one of %v", f.Message, res.n, slices.Sorted(maps.Keys(res.causes)))
			}
		case err != nil:
			rt.Fatal(err)
		case !loose && (res.failed() || got != res.n):
			rt.Errorf("got %d, want %d or one of %v", got, res.n, slices.Sorted(maps.Keys(res.causes)))
		}
		prop.mu.Lock()
		defer prop.mu.Unlock()
		have := map[string]int{}
		for node, n := range prop.runs[run.ID()] {
			task, _, _ := strings.Cut(node, " ")
			have[task] += n
			if n > 1 && task != "p.leaf" {
				rt.Errorf("node %s ran %d times", node, n)
			}
		}
		delete(prop.runs, run.ID())
		if loose {
			return
		}
		for task := range have {
			if have[task] > want.sure[task]+want.loose[task] {
				rt.Errorf("%s ran %d times, want %d and at most %d more\n%s", task, have[task], want.sure[task], want.loose[task], tree(t, w, run.ID()))
			}
		}
		for task, n := range want.sure {
			if have[task] < n {
				rt.Errorf("%s ran %d times, want %d\n%s", task, have[task], n, tree(t, w, run.ID()))
			}
		}
	})
}
