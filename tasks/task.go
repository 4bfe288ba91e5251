package tasks

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"

	"muster/tasks/internal/graph"
)

// Task is a named unit of work that takes an I and yields an O. It is only a declaration: [Handle] binds it to code
// in a worker, and a program that sends it needs no handler. The name, such as "proxies.check", is stored with each
// workflow. It has 1 to 100 bytes of UTF-8 without control characters.
type Task[I, O any] struct {
	name string
	opts *graph.Opts
}

// New declares a task. The options are the defaults of its signatures. A program that knows only the name of a task
// can declare it as a Task[json.RawMessage, json.RawMessage].
func New[I, O any](name string, opts ...TaskOption) Task[I, O] {
	t := Task[I, O]{name: name, opts: collect(opts, TaskOption.forTask)}
	checkChoices[O](t.opts)
	checkLimits[I](t.opts)
	return t
}

// checkLimits makes the use of a task invalid if its limits are not for it.
func checkLimits[I any](o *graph.Opts) {
	for i, l := range o.Limits {
		switch in := reflect.TypeFor[I](); {
		case o.Err != nil:
		case o.External:
			o.Err = fmt.Errorf("limit %s has no effect on a task that is completed externally: no worker runs it", l.Name)
		case l.In != in && l.Key != nil:
			o.Err = fmt.Errorf("the function of limit %s takes a %s, not the input type %s", l.Name, l.In, in)
		case slices.ContainsFunc(o.Limits[:i], func(u *graph.Limit) bool { return u.Name == l.Name }):
			o.Err = fmt.Errorf("limit %s is given twice", l.Name)
		}
	}
}

// With returns a copy of t whose uses have opts, such as the element of a [Map].
func (t Task[I, O]) With(opts ...CallOption) Task[I, O] {
	t.opts = t.opts.Over(collect(opts, CallOption.forCall))
	return t
}

// Name returns the name the task was declared with.
func (t Task[I, O]) Name() string { return t.name }

// S returns the signature that runs t on in. It sends nothing. An input that does not marshal to JSON is an error of
// Send.
func (t Task[I, O]) S(in I, opts ...CallOption) Signature[O] {
	s := &graph.Sig{Shape: graph.Call, Task: t.name, Opts: t.opts.Over(collect(opts, CallOption.forCall))}
	raw, err := marshal(in)
	if err != nil {
		s.Err = fmt.Errorf("input of task %s does not marshal to JSON: %w", t.name, err)
	}
	s.Input = raw
	return Signature[O]{s}
}

// Signature is work that yields an O. It is immutable, may be used by many goroutines at once, and runs when it is
// sent. A signature that is used in two places of one send runs once; sending it again runs it again. Send returns an
// error for the zero Signature.
type Signature[O any] struct{ sig *graph.Sig }

// Work is a [Signature] of any type.
type Work interface{ work() *graph.Sig }

func (s Signature[O]) work() *graph.Sig { return s.sig }

// String returns the signature as one line, such as "list(3) → each double → sum"; long parts are cut.
func (s Signature[O]) String() string { return s.sig.String() }

// With returns a copy of s with opts on what s ends with: its task, the last step of a chain, the body of a
// chord, every member of a group, a map or a join. [AtMost] and [FailFast] are for such a group, map or join as a whole; on a
// task they are an error of Send.
func (s Signature[O]) With(opts ...GroupOption) Signature[O] {
	return Signature[O]{s.sig.With(collect(opts, GroupOption.forGroup))}
}

// Chain runs next on the value of s, and yields the value of next. Further steps follow by another Chain.
func Chain[A, B any](s Signature[A], next Task[A, B], opts ...CallOption) Signature[B] {
	return Signature[B]{step(graph.Chain, s.sig, next.name, next.opts, collect(opts, CallOption.forCall))}
}

// Value yields v, which is stored with the workflow, without running a task.
func Value[O any](v O) Signature[O] {
	raw, err := marshal(v)
	if err != nil {
		return Signature[O]{&graph.Sig{Shape: graph.Value, Err: fmt.Errorf("constant does not marshal to JSON: %w", err)}}
	}
	return Signature[O]{&graph.Sig{Shape: graph.Value, Input: raw}}
}

// Bind returns t with the second half of its input set to second; a chain, a chord or a map gives it the first half.
// Handlers are bound to t itself.
func Bind[A, C, B any](t Task[Pair[A, C], B], second C) Task[A, B] {
	o := *t.opts.Over(nil)
	raw, err := marshal(second)
	if err != nil && o.Err == nil {
		o.Err = fmt.Errorf("second half of its input does not marshal to JSON: %w", err)
	}
	o.Bind = append(o.Bind[:len(o.Bind):len(o.Bind)], raw)
	return Task[A, B]{name: t.name, opts: &o}
}

// Group runs all of ss at once and yields their values in the order given. A group of one signature yields a list of
// one value, an empty group yields an empty list.
func Group[O any](ss ...Signature[O]) Signature[[]O] {
	kids := make([]*graph.Sig, len(ss))
	for i, s := range ss {
		kids[i] = s.sig
	}
	return Signature[[]O]{&graph.Sig{Shape: graph.Group, Kids: kids, Opts: graph.NoOpts}}
}

// Each is the [Group] of t.S(in) for each in of ins.
func Each[I, O any](ins []I, t Task[I, O], opts ...GroupOption) Signature[[]O] {
	own := *collect(opts, GroupOption.forGroup)
	group := &graph.Opts{AtMost: own.AtMost, FailFast: own.FailFast, Err: own.Err}
	own.AtMost, own.FailFast = 0, false
	shared := t.opts.Over(&own)
	sigs := make([]graph.Sig, len(ins))
	kids := make([]*graph.Sig, len(ins))
	for i, in := range ins {
		sigs[i] = graph.Sig{Shape: graph.Call, Task: t.name, Opts: shared}
		raw, err := marshal(in)
		if err != nil {
			sigs[i].Err = fmt.Errorf("input %d of task %s does not marshal to JSON: %w", i, t.name, err)
		}
		sigs[i].Input = raw
		kids[i] = &sigs[i]
	}
	return Signature[[]O]{&graph.Sig{Shape: graph.Group, Kids: kids, Opts: group}}
}

// Chord runs body on the list that header yields, once all of its members have succeeded. A failed member skips
// the body; wrap header in [Settle] if the body should run even so.
func Chord[A, B any](header Signature[[]A], body Task[[]A, B], opts ...CallOption) Signature[B] {
	return Signature[B]{step(graph.Chord, header.sig, body.name, body.opts, collect(opts, CallOption.forCall))}
}

// Map runs each on every element of the list that s yields, however many there will be, and yields
// the results in the order of the elements.
func Map[A, B any](s Signature[[]A], each Task[A, B], opts ...GroupOption) Signature[[]B] {
	return Signature[[]B]{step(graph.Map, s.sig, each.name, each.opts, collect(opts, GroupOption.forGroup))}
}

// MapFunc is [Map] for more than one task: it runs the signature that each returns for every element of the list that s
// yields. MapFunc calls each once, with a signature that represents the element. each cannot use other signatures of the
// workflow, which would run again for each element; [Join] their values with the list.
func MapFunc[A, B any](s Signature[[]A], each func(element Signature[A]) Signature[B]) Signature[[]B] {
	hole := &graph.Sig{Shape: graph.Value}
	return Signature[[]B]{&graph.Sig{Shape: graph.MapFunc, Kids: []*graph.Sig{s.sig}, Body: each(Signature[A]{hole}).sig, Hole: hole, Opts: graph.NoOpts}}
}

// Pair is the value of a [Join], and the input of a task for [Bind].
type Pair[A, B any] struct {
	First  A `json:"first"`
	Second B `json:"second"`
}

// Join runs a and b at the same time and yields both values.
func Join[A, B any](a Signature[A], b Signature[B]) Signature[Pair[A, B]] {
	return Signature[Pair[A, B]]{&graph.Sig{Shape: graph.Join, Kids: []*graph.Sig{a.sig, b.sig}, Opts: graph.NoOpts}}
}

// Outcome is the value of a signature, or its failure.
type Outcome[O any] struct {
	Value O        `json:"value"`
	Err   *Failure `json:"err,omitempty"`
}

// Settle yields the outcomes of the members of s: it waits for all members, and a member that fails does not fail it.
// It still fails when there is no list, as when the task that returns the list of a [Map] failed.
func Settle[O any](s Signature[[]O]) Signature[[]Outcome[O]] {
	return Signature[[]Outcome[O]]{&graph.Sig{Shape: graph.Settle, Kids: []*graph.Sig{s.sig}}}
}

// Try yields the outcome of s: a failure of s does not fail it. The next step of a chain decides what to do.
func Try[O any](s Signature[O]) Signature[Outcome[O]] {
	return Signature[Outcome[O]]{&graph.Sig{Shape: graph.Try, Kids: []*graph.Sig{s.sig}}}
}

// After runs next once s has succeeded, without passing it anything. When s fails, next fails too, so that a Rescue
// inside of next runs.
func After[A, B any](s Signature[A], next Signature[B]) Signature[B] {
	return Signature[B]{&graph.Sig{Shape: graph.After, Kids: []*graph.Sig{s.sig, next.sig}}}
}

// Rescue yields the value of s or, if s fails, runs t on the failure and yields the value of t.
func (s Signature[O]) Rescue(t Task[Failure, O]) Signature[O] {
	return Signature[O]{step(graph.Rescue, s.sig, t.name, t.opts, graph.NoOpts)}
}

// OnSuccess yields the value of s, and also runs cb on it. The result of cb does not change s. Each use
// adds a run: a task that is added to s twice runs twice.
func OnSuccess[A, B any](s Signature[A], cb Task[A, B]) Signature[A] {
	return Signature[A]{step(graph.OnSuccess, s.sig, cb.name, cb.opts, graph.NoOpts)}
}

// OnError yields the value or the failure of s, and runs eb on a failure: once with the failure of s, or, when s is a
// group or a map, once for every member that failed. Each use adds a run, as with [OnSuccess].
func OnError[A, B any](s Signature[A], eb Task[Failure, B]) Signature[A] {
	return Signature[A]{step(graph.OnError, s.sig, eb.name, eb.opts, graph.NoOpts)}
}

func step(shape graph.Shape, s *graph.Sig, task string, declared, opts *graph.Opts) *graph.Sig {
	return &graph.Sig{Shape: shape, Task: task, Opts: declared.Over(opts), Kids: []*graph.Sig{s}}
}

// marshal returns v as JSON. A MarshalJSON that panics is an error, too.
func marshal(v any) (raw json.RawMessage, err error) {
	defer func() {
		if p := recover(); p != nil {
			raw, err = nil, fmt.Errorf("panic: %v", p)
		}
	}()
	return json.Marshal(v)
}

var (
	errSignature = errors.New("a Signature cannot be encoded as JSON; send it, or return it from a handler bound with HandlePlan")
	errResult    = errors.New("a handle of a workflow has no JSON: keep its ID, and use Attach with that")
)

// MarshalJSON returns an error: a signature can be sent, but cannot be an input or a result.
func (s Signature[O]) MarshalJSON() ([]byte, error) { return nil, errSignature }

// UnmarshalJSON returns the same error as MarshalJSON.
func (s *Signature[O]) UnmarshalJSON([]byte) error { return errSignature }

// MarshalJSON returns an error: store the ID, and make a handle from it with [Attach].
func (w Workflow) MarshalJSON() ([]byte, error) { return nil, errResult }

// UnmarshalJSON returns the same error as MarshalJSON.
func (w *Workflow) UnmarshalJSON([]byte) error { return errResult }
