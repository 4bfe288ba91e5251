package tasks

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"sync/atomic"

	"muster/tasks/internal/engine"
	"muster/tasks/internal/graph"
	"muster/tasks/tasktype"
)

// Mux binds tasks to handlers. Bind and wrap them all before a worker is made with it; later, [Handle], its variants and
// [Mux.Use] panic. It is not safe for use by many goroutines at once, but several workers can be made with it.
type Mux struct {
	handlers map[string]*engine.Handler
	base     engine.Handler // has the middleware of handlers that are bound later
	sealed   atomic.Bool    // a worker was made with it
}

// NewMux returns a Mux without handlers, except for the task of [Compensate].
func NewMux() *Mux {
	m := &Mux{handlers: map[string]*engine.Handler{}}
	bindCompensate(m)
	return m
}

// Middleware wraps a handler: next calls the handler and returns its error. info describes the run.
type Middleware func(ctx context.Context, info tasktype.Info, next func(context.Context) error) error

// Use wraps all handlers of m, including handlers that are bound later. The first middleware given is the outermost.
func (m *Mux) Use(mw ...Middleware) {
	m.checkOpen("Use is called")
	for _, f := range mw {
		m.base.Use(f)
		for _, h := range m.handlers {
			h.Use(f)
		}
	}
}

// checkOpen panics if a worker has been made with m, because it would ignore what is done.
func (m *Mux) checkOpen(done string) {
	if m.sealed.Load() {
		panic("tasks: " + done + " after a worker was made with the Mux; do it before NewWorker or StartWorker")
	}
}

// Handle binds t to h. The context of h ends at the task's [Timeout], when the workflow is revoked
// and when the worker must stop. Handle panics if the name is already bound.
func Handle[I, O any](m *Mux, t Task[I, O], h func(context.Context, I) (O, error)) {
	bind(m, t.name, t.opts, reflect.TypeFor[I](), func(ctx context.Context, raw []byte) (engine.HandlerResult, error) {
		in, err := decode[I](t.name, raw)
		if err != nil {
			return engine.HandlerResult{}, err
		}
		out, err := h(ctx, in)
		if err != nil {
			return engine.HandlerResult{}, err
		}
		return encode(out)
	})
}

func encode(out any) (engine.HandlerResult, error) {
	value, err := json.Marshal(out)
	if err != nil {
		err = &engine.Verdict{Err: fmt.Errorf("result does not marshal to JSON: %w", err), Permanent: true, Code: tasktype.CodeResult}
	}
	return engine.HandlerResult{Value: value}, err
}

// HandleAction binds a task without a result to h, as [Handle] does.
func HandleAction[I any](m *Mux, t Task[I, struct{}], h func(context.Context, I) error) {
	Handle(m, t, func(ctx context.Context, in I) (struct{}, error) { return struct{}{}, h(ctx, in) })
}

// HandlePlan binds t to a planner: the signature that plan returns replaces the task, and its value is the value of
// the task. HandlePlan panics if the name is already bound.
func HandlePlan[I, O any](m *Mux, t Task[I, O], plan func(context.Context, I) (Signature[O], error)) {
	bind(m, t.name, t.opts, reflect.TypeFor[I](), func(ctx context.Context, raw []byte) (engine.HandlerResult, error) {
		in, err := decode[I](t.name, raw)
		if err != nil {
			return engine.HandlerResult{}, err
		}
		s, err := plan(ctx, in)
		if err != nil {
			return engine.HandlerResult{}, err
		}
		return engine.HandlerResult{Plan: s.sig, Planned: true}, nil
	})
}

func bind(m *Mux, name string, opts *graph.Opts, in reflect.Type, run func(context.Context, []byte) (engine.HandlerResult, error)) (bound []*engine.Handler) {
	if err := graph.CheckTask(name); err != nil {
		panic(fmt.Sprintf("tasks: %v", err))
	}
	m.checkOpen(name + " is bound")
	if len(opts.Bind) > 0 {
		panic(fmt.Sprintf("tasks: %s has a part of its input from Bind; bind the handler to the task as it was declared", name))
	}
	for _, n := range append([]string{name}, opts.Alias...) {
		if m.handlers[n] != nil {
			panic(fmt.Sprintf("tasks: %s is bound twice", n))
		}
		m.handlers[n] = &engine.Handler{Name: n, Opts: opts, In: in, Run: run, Wrap: m.base.Wrap}
		bound = append(bound, m.handlers[n])
	}
	return bound
}

func decode[I any](name string, raw []byte) (I, error) {
	var in I
	if err := json.Unmarshal(raw, &in); err != nil {
		return in, &engine.Verdict{
			Err: fmt.Errorf("input of %s does not decode: %w", name, err), Permanent: true, Code: tasktype.CodeInput}
	}
	return in, nil
}

// InfoFrom returns the description of the run that ctx, the context of a handler, belongs to. For any other context it
// returns the zero Info.
func InfoFrom(ctx context.Context) tasktype.Info {
	if r := engine.RunFrom(ctx); r != nil {
		return r.Info
	}
	return tasktype.Info{}
}

// SetProgress stores how far the task of ctx is, for [Workflow.Nodes] and for the
// percentage of [Workflow.Watch]. It may be called often: except for the last call,
// with done equal to total, at most four calls a second write to Redis. A call that writes waits for Redis, for up to two
// seconds, and logs an error at level debug. The progress of a failed attempt is deleted. For a context that does not belong
// to a handler it does nothing.
func SetProgress(ctx context.Context, done, total int) {
	if r := engine.RunFrom(ctx); r != nil {
		r.SetProgress(done, total)
	}
}

// PublishKey writes one of the workflow's progress keys, such as "status" or "result_count". It does
// nothing unless the workflow was sent with [ProgressKeys]. A number never decreases, and a status never returns to an
// earlier one.
func PublishKey(ctx context.Context, name, value string) {
	if r := engine.RunFrom(ctx); r != nil {
		r.PublishKey(ctx, name, value)
	}
}
