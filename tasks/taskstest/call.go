package taskstest

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"time"

	"muster/tasks"
	"muster/tasks/internal/engine"
	"muster/tasks/tasktype"
)

// A Call is one call of a handler.
type Call struct {
	tasktype.Info
	At     time.Time       // by the clock of the fleet
	Input  json.RawMessage // input of the handler
	Output json.RawMessage // result of the handler; nil if it returned an error or a plan
	Err    error           // error of the handler, including tasks.Again; nil if it succeeded
	Steps  []string        // names of the steps that ran and were stored, in order; see tasks.Step
}

// Calls returns the calls of handlers so far, in order, optionally only of the tasks with the given names.
func (f *Fleet) Calls(names ...string) []Call {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(names) == 0 {
		return slices.Clone(f.calls)
	}
	var out []Call
	for _, c := range f.calls {
		if slices.Contains(names, c.Task) {
			out = append(out, c)
		}
	}
	return out
}

// Names returns the task names of calls.
func Names(calls []Call) []string {
	out := make([]string, len(calls))
	for i, c := range calls {
		out[i] = c.Task
	}
	return out
}

// Stub returns an option that replaces the handler of t by h. The middleware of the Mux applies to it.
func Stub[I, O any](t tasks.Task[I, O], h func(context.Context, I) (O, error)) Option {
	return func(f *Fleet) {
		mux := tasks.NewMux()
		tasks.Handle(mux, t, h)
		for name, stub := range f.handlersOf(mux) {
			if old := f.handlers[name]; old != nil {
				stub.Opts, stub.Wrap = old.Opts, old.Wrap
			}
			f.handlers[name] = stub
		}
	}
}

// Fails is [Stub] with a handler that returns err.
func Fails[I, O any](t tasks.Task[I, O], err error) Option {
	return Stub(t, func(context.Context, I) (O, error) {
		var zero O
		return zero, err
	})
}

// Dies returns an option that kills the worker in each of the first n attempts of t, before its handler is called.
// Another worker runs the task again, as after a kill -9. A task that has killed more than ten workers fails with the
// code lost.
func Dies[I, O any](t tasks.Task[I, O], n int) Option {
	return func(f *Fleet) { f.deaths[t.Name()] = n }
}

// DiesAfterStep returns an option that kills the worker of t when it has first stored a step: [tasks.Step] returns an error there. Another
// worker runs the task again, with the stored steps.
func DiesAfterStep[I, O any](t tasks.Task[I, O], step string) Option {
	return func(f *Fleet) { f.deaths[t.Name()+" "+step] = 1 }
}

var errDied = errors.New("the worker has died")

// recorded returns h with a wrapper that records its calls, one at a time.
func (f *Fleet) recorded(h *engine.Handler) *engine.Handler {
	out := *h
	out.Run = func(ctx context.Context, input []byte) (engine.HandlerResult, error) {
		if info := tasks.InfoFrom(ctx); f.dies(info.Task, info.Worker) {
			return engine.HandlerResult{}, errDied // not stored: the worker has lost its batch
		}
		if h.Batch == nil { // the nodes of a batch run together
			f.turn.Lock()
			defer f.turn.Unlock()
		}
		c := Call{Info: tasks.InfoFrom(ctx), At: f.Now(), Input: slices.Clone(input)}
		defer func() {
			f.mu.Lock()
			defer f.mu.Unlock()
			c.Steps = f.steps[c.Key]
			delete(f.steps, c.Key)
			if h.Batch == nil || !errors.Is(c.Err, engine.ErrShutdown) { // else the worker was killed before the call
				f.calls = append(f.calls, c)
			}
		}()
		a, err := h.Run(ctx, input)
		c.Output, c.Err = a.Value, err
		return a, err
	}
	out.Stepped = func(ctx context.Context, name string) error {
		info := tasks.InfoFrom(ctx)
		f.mu.Lock()
		f.steps[info.Key] = append(f.steps[info.Key], name)
		f.mu.Unlock()
		if f.dies(info.Task+" "+name, info.Worker) {
			return errDied
		}
		return nil
	}
	return &out
}
