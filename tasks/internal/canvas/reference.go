package canvas

import (
	"fmt"
	"maps"
	"slices"
)

// Result is the result of a definition: a value, or one of several possible failures.
type Result struct {
	N       int
	List    []int
	Members []Result // of a list with members
	Causes  map[string]bool
	own     *int // which failure it is, if it failed by itself
}

// expiry is the message of a task that has expired.
const expiry = "not begun, or not called again, before it expired"

// Failed reports whether there is no value.
func (r *Result) Failed() bool { return len(r.Causes) > 0 }

// failureHandlersRun reports whether callbacks for errors run after a failure. They do not run after an expiry; with several
// failures it depends on which was first.
func (r *Result) failureHandlersRun() (surely, maybe bool) {
	return r.Failed() && !r.Causes[expiry], r.Failed() && (!r.Causes[expiry] || len(r.Causes) > 1)
}

func failure(message string) Result {
	return Result{Causes: map[string]bool{message: true}, own: new(int)}
}

func causesOf(rs ...Result) Result {
	out := Result{Causes: map[string]bool{}}
	for _, r := range rs {
		maps.Copy(out.Causes, r.Causes)
	}
	return out
}

// reference evaluates a scope and counts the runs of each task.
type reference struct {
	s    *Scope
	runs Runs
	done map[int]Result
}

// Runs counts the runs of tasks; tasks in Loose may run up to that many times more.
type Runs struct {
	Sure, Loose map[string]int
	Mended      bool   // no task fails, except tasks that expire
	Fast        *bool  // a group has ended the rest of itself because one failed: anything may have been part of it
	Asked       *[]int // the results that the tasks of kind "ask" need
}

// NewRuns returns no runs.
func NewRuns() Runs {
	return Runs{Sure: map[string]int{}, Loose: map[string]int{}, Fast: new(bool), Asked: new([]int)}
}

// Evaluate returns the result of s, and adds the runs of its tasks to runs.
func Evaluate(s *Scope, runs Runs) Result { return EvaluateAll(s, runs)[len(s.Defs)-1] }

// EvaluateAll is like Evaluate and returns the results of all definitions that s uses.
func EvaluateAll(s *Scope, runs Runs) map[int]Result {
	r := &reference{s, runs, map[int]Result{}}
	r.eval(len(s.Defs) - 1)
	return r.done
}

func (r *reference) each(n int) Result {
	r.runs.Sure["p.each"]++
	if n%4 == badRemainder && !r.runs.Mended {
		return failure(fmt.Sprint("each ", n))
	}
	return Result{N: n + 1}
}

func gather(members []Result) Result {
	out := causesOf(members...)
	out.Members = members
	out.List = []int{}
	for _, m := range members {
		out.List = append(out.List, m.N)
	}
	return out
}

func (r *reference) eval(i int) Result {
	if res, ok := r.done[i]; ok {
		return res
	}
	res := r.one(&r.s.Defs[i])
	if r.s.Defs[i].Fast && res.Failed() {
		*r.runs.Fast = true
	}
	r.done[i] = res
	return res
}

func (r *reference) one(d *Def) Result {
	kids := make([]Result, len(d.Kids))
	for k, kid := range d.Kids {
		kids[k] = r.eval(kid)
	}
	switch d.Kind {
	case "listvalue":
		return Result{List: d.Ints}
	case "value":
		return Result{N: d.Ints[0]}
	case "leaf", "after", "step", "ask", "hand", "bad", "sum", "plus", "bound":
		return r.task(d, kids)
	case "count":
		return r.count(kids[0])
	case "try":
		r.runs.Sure["p.try"]++
		return Result{N: numberOrFailure(kids[0])}
	case "plan", "listplan":
		r.runs.Sure["p."+d.Kind]++
		res := Evaluate(d.Plan, r.runs)
		res.Members = nil
		return res
	case "rescue", "listrescue":
		return r.rescue(d, kids[0])
	case "success", "error", "listsuccess", "listerror":
		r.callback(d, kids)
		return kids[0]
	case "group":
		return gather(kids)
	case "each", "listafter":
		return r.ints(d, kids)
	case "map", "mapplan", "mapfunc":
		return r.mapped(d, kids[0])
	}
	panic(d.Kind)
}

// task evaluates a single task.
func (r *reference) task(d *Def, kids []Result) Result {
	if all := causesOf(kids...); all.Failed() {
		return all
	}
	switch d.Kind {
	case "leaf", "after":
		return r.leaf(d)
	case "bad":
		r.runs.Sure["p.bad"]++
		if r.runs.Mended {
			return kids[0]
		}
		return failure(fmt.Sprint("bad ", kids[0].N))
	case "ask":
		*r.runs.Asked = append(*r.runs.Asked, kids[0].N+1)
		return Result{N: kids[0].N + 1}
	case "hand":
		r.runs.Sure["p.hand"]++
		r.runs.Loose["p.hand"] += 1000 // the external result may be late
		return Result{N: kids[0].N + 1}
	}
	if d.Kind == "bound" {
		r.runs.Sure["p.plus"]++
		return Result{N: kids[0].N + boundTo}
	}
	r.runs.Sure["p."+d.Kind]++
	switch d.Kind {
	case "step":
		return Result{N: kids[0].N + 1}
	case "sum":
		return Result{N: sum(kids[0].List)}
	}
	total := 0
	for _, k := range kids {
		total += k.N
	}
	return Result{N: total}
}

func (r *reference) leaf(d *Def) Result {
	if d.Late {
		r.runs.Loose["p.late"]++
		return failure(expiry)
	}
	r.runs.Sure["p.leaf"] += 1 + d.Tries
	if d.Fail && !r.runs.Mended {
		return failure(fmt.Sprint("leaf ", d.Ints[0]))
	}
	return Result{N: d.Ints[0]}
}

func (r *reference) rescue(d *Def, of Result) Result {
	of.Members = nil
	switch {
	case !of.Failed():
		return of
	case d.Kind == "rescue":
		r.runs.Sure["p.instead"]++
		return Result{N: -1}
	}
	r.runs.Sure["p.none"]++
	return Result{List: []int{}}
}

// callback counts the runs of the callbacks of a node for its success or its failure.
func (r *reference) callback(d *Def, kids []Result) {
	surely, maybe := kids[0].failureHandlersRun()
	switch d.Kind {
	case "success":
		r.tally("p.cb", !kids[0].Failed(), false)
	case "listsuccess":
		r.tally("p.listcb", !kids[0].Failed(), false)
	case "error":
		r.tally("p.eb", surely, maybe)
	case "listerror":
		of := kids[0].Members
		if of == nil {
			of = kids[:1]
		}
		r.memberErrors(of)
	}
}

// memberErrors counts the runs of a callback for the failures among members: one for each member that failed by
// itself, and otherwise as many as there are causes, which can be the same.
func (r *reference) memberErrors(of []Result) {
	heard := map[*int]bool{}
	any, sure := false, 0
	for k := range of {
		surely, maybe := of[k].failureHandlersRun()
		own := of[k].own
		if own != nil && heard[own] {
			continue
		}
		heard[own] = own != nil
		switch {
		case surely && own != nil:
			sure++
		case maybe:
			any = any || surely
			r.runs.Loose["p.eb"]++
		}
	}
	if sure == 0 && any {
		sure = 1
		r.runs.Loose["p.eb"]--
	}
	r.runs.Sure["p.eb"] += sure
}

// ints evaluates a group of tasks on literals.
func (r *reference) ints(d *Def, kids []Result) Result {
	if all := causesOf(kids...); all.Failed() {
		if len(d.Ints) == 0 {
			return all
		}
		return gather(slices.Repeat([]Result{all}, len(d.Ints)))
	}
	members := make([]Result, len(d.Ints))
	for k, n := range d.Ints {
		members[k] = r.each(n)
	}
	return gather(members)
}

// mapped evaluates a map.
func (r *reference) mapped(d *Def, over Result) Result {
	if over.Failed() {
		return causesOf(over)
	}
	members := make([]Result, len(over.List))
	for k, n := range over.List {
		switch d.Kind {
		case "map":
			members[k] = r.each(n)
			continue
		case "mapfunc":
			members[k] = r.body(n)
			continue
		}
		r.runs.Sure["p.mapplan"]++
		members[k] = Evaluate(mapPlan(n), r.runs)
	}
	return gather(members)
}

// body evaluates the body of a mapfunc for an element.
func (r *reference) body(n int) Result {
	r.runs.Sure["p.step"]++
	of := r.each(n)
	if of.Failed() {
		return causesOf(of)
	}
	r.runs.Sure["p.plus"]++
	return Result{N: of.N + boundTo + 1}
}

// tally counts one run of a task.
func (r *reference) tally(name string, surely, maybe bool) {
	switch {
	case surely:
		r.runs.Sure[name]++
	case maybe:
		r.runs.Loose[name]++
	}
}

func (r *reference) count(of Result) Result {
	members := of.Members
	if members == nil {
		if of.Failed() {
			return causesOf(of)
		}
		for _, n := range of.List {
			members = append(members, Result{N: n})
		}
	}
	out := Result{}
	for _, m := range members {
		out.N += numberOrFailure(m)
	}
	r.runs.Sure["p.count"]++
	return out
}

// numberOrFailure returns the value of a result, and 1000 for a failure.
func numberOrFailure(r Result) int {
	if r.Failed() {
		return 1000
	}
	return r.N
}

// Differs returns how the result of a workflow differs from r, or "". A failure has a message.
func (r *Result) Differs(n int, failed bool, message string) string {
	causes := slices.Sorted(maps.Keys(r.Causes))
	switch {
	case failed && !r.Causes[message]:
		return fmt.Sprintf("failed with %q, want %d or one of %q", message, r.N, causes)
	case !failed && (r.Failed() || n != r.N):
		return fmt.Sprintf("got %d, want %d or one of %q", n, r.N, causes)
	}
	return ""
}

// Differs returns how the numbers of runs of tasks differ from r.
func (r Runs) Differs(runs map[string]int) (out []string) {
	for _, task := range slices.Sorted(maps.Keys(runs)) {
		if n := runs[task]; n > r.Sure[task]+r.Loose[task] {
			out = append(out, fmt.Sprintf("%s ran %d times, want %d and at most %d more", task, n, r.Sure[task], r.Loose[task]))
		}
	}
	for _, task := range slices.Sorted(maps.Keys(r.Sure)) {
		if n := runs[task]; n < r.Sure[task] {
			out = append(out, fmt.Sprintf("%s ran %d times, want %d", task, n, r.Sure[task]))
		}
	}
	return out
}
