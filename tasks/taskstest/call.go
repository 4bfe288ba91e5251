package taskstest

import (
	"context"
	"encoding/json"
	"slices"
	"testing"
	"time"

	"muster/tasks"
	"muster/tasks/internal/engine"
	"muster/tasks/tasktype"
)

// Call is one call of a handler.
type Call struct {
	tasktype.Info
	At     time.Time       // by the fleet's clock
	Input  json.RawMessage // what the handler was given
	Output json.RawMessage // what it returned; nil when it failed or answered with a plan
	Err    error           // what it failed with, or asked for another call with
}

// In decodes the input of a call, and ends the test when that is no I.
func In[I any](tb testing.TB, c Call) I {
	tb.Helper()
	var in I
	if err := json.Unmarshal(c.Input, &in); err != nil {
		tb.Fatalf("input of %s is not a %T: %v", c.Task, in, err)
	}
	return in
}

// Calls returns the calls of handlers so far, in their order; only those of the given tasks if there
// are any.
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

// Names returns the tasks of calls.
func Names(calls []Call) []string {
	out := make([]string, len(calls))
	for i, c := range calls {
		out[i] = c.Task
	}
	return out
}

// Stub puts h in the place of what the Mux has for t, which may be nothing.
func Stub[I, O any](t tasks.Task[I, O], h func(context.Context, I) (O, error)) Option {
	return func(f *Fleet) {
		mux := tasks.NewMux()
		tasks.Handle(mux, t, h)
		for name, stub := range f.handlersOf(mux) {
			if had := f.handlers[name]; had != nil {
				stub.Opts, stub.Wrap = had.Opts, had.Wrap
			}
			f.handlers[name] = stub
		}
	}
}

// Returns is [Stub] with a handler that always returns out.
func Returns[I, O any](t tasks.Task[I, O], out O) Option {
	return Stub(t, func(context.Context, I) (O, error) { return out, nil })
}

// Fails is [Stub] with a handler that always fails with err.
func Fails[I, O any](t tasks.Task[I, O], err error) Option {
	return Stub(t, func(context.Context, I) (O, error) {
		var zero O
		return zero, err
	})
}

// recorded returns h with its calls recorded, one at a time.
func (f *Fleet) recorded(h *engine.Handler) *engine.Handler {
	out := *h
	out.Run = func(ctx context.Context, input []byte) (engine.Answer, error) {
		f.turn.Lock()
		defer f.turn.Unlock()
		c := Call{Info: tasks.InfoFrom(ctx), At: f.Now(), Input: slices.Clone(input)}
		defer func() {
			f.mu.Lock()
			defer f.mu.Unlock()
			f.calls = append(f.calls, c)
		}()
		a, err := h.Run(ctx, input)
		c.Output, c.Err = a.Value, err
		return a, err
	}
	return &out
}
