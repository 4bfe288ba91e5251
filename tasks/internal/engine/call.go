package engine

import (
	"context"
	"errors"
	"fmt"
	"time"

	"muster/tasks/internal/graph"
	"muster/tasks/internal/store"
	"muster/tasks/tasktype"
)

// callResult is the outcome of a call of a handler: the reason why the engine ended it, or else the handler's error or
// result.
type callResult struct {
	answer  HandlerResult
	err     *handlerError
	ended   error
	pending bool
	leased  *leased // with pending; nil unless a program leases the node
}

// call runs the handler under its time limits. When it returns, the slot may be used again.
func (r *Run) call(h *Handler, input []byte) callResult {
	soft, hard := limits(r.spec)
	ctx := r.ctx
	r.w.runs.add(r)
	defer r.w.runs.remove(r)
	if soft > 0 {
		var stop context.CancelFunc
		ctx, stop = context.WithTimeout(ctx, soft)
		defer stop()
	}
	if hard > 0 {
		t := time.AfterFunc(hard, func() { r.free(errHard) })
		defer t.Stop()
	}
	done := make(chan callResult, 1)
	go r.handle(ctx, h, input, done)
	select {
	case a := <-done:
		return a
	case <-r.freed:
		select {
		case a := <-done:
			return a
		default:
		}
		return callResult{ended: r.cause}
	}
}

// compute calls a function of the user as a handler is called. It returns the outcome of the run if that fails.
func (r *Run) compute(h *Handler, f func()) *callResult {
	a := r.call(&Handler{Opts: h.Opts, Run: func(context.Context, []byte) (HandlerResult, error) { f(); return HandlerResult{}, nil }}, nil)
	if a.err != nil || a.ended != nil {
		return &a
	}
	return nil
}

// keys computes the limits of a run. It returns the outcome of the run if a key function fails, as a handler would.
func (r *Run) keys(h *Handler, limits []*graph.Limit, input []byte) *callResult {
	if r.keyed {
		return nil
	}
	var out []store.Limit
	a := r.compute(h, func() {
		for _, l := range limits {
			key := ""
			if l.Key != nil {
				var err error
				if key, err = l.Key(input); err != nil || key == "" { // if the input does not decode, the handler fails
					continue
				}
			}
			out = append(out, store.Limit{Name: l.Name, Key: key, N: l.N, Per: l.Per})
		}
	})
	if a != nil {
		return a
	}
	r.limits, r.keyed, r.owner = out, true, r.w.leases.lend(r.it).Call
	return nil
}

// handle calls the handler with its middleware, and sends how that ended.
func (r *Run) handle(ctx context.Context, h *Handler, input []byte, done chan<- callResult) {
	// The result if user code ends the goroutine.
	a := callResult{err: goexited()}
	defer func() { done <- a.under(context.Cause(ctx)) }()
	defer func() {
		if p := recover(); p != nil {
			a.err = r.panicked(p, "")
		}
	}()
	var answer HandlerResult
	next := func(ctx context.Context) error {
		var err error
		answer, err = h.Run(ctx, input)
		return err
	}
	for i := len(h.Wrap) - 1; i >= 0; i-- {
		mw, inner := h.Wrap[i], next
		next = func(ctx context.Context) error { return mw(ctx, r.Info, inner) }
	}
	err := next(ctx)
	if err == nil {
		a = callResult{answer: answer}
		return
	}
	if IsPending(err) {
		a = callResult{pending: true}
		_ = errors.As(err, &a.leased)
		return
	}
	a.err = r.readError(ctx, h, err)
}

// under returns the result of a call whose context has ended with cause: an error or a panic does not count if the worker
// stops or the node was revoked, and is final if the workflow was cancelled.
func (a callResult) under(cause error) callResult {
	switch {
	case a.err == nil:
	case errors.Is(cause, ErrShutdown), errors.Is(cause, errRevoked):
		return callResult{ended: cause}
	case errors.Is(cause, tasktype.ErrCancelled):
		m := marks{passed: a.err.passed, permanent: true}
		if m.code = a.err.code; m.passed == nil {
			m.code, _ = cancelledNode(cause)
		}
		a.err.marks = m
	}
	return a
}

var (
	errHard   = errors.New("hard time limit")
	errKilled = fmt.Errorf("killed: %w", ErrShutdown)
)

// defaultTimeout is the soft time limit of tasks that name none.
const defaultTimeout = time.Hour

// hardMargin is how much later the hard limit is when none is named.
const hardMargin = 10 * time.Second

// limits returns the time limits of a task; 0 for none.
func limits(sp *graph.Spec) (soft, hard time.Duration) {
	soft = defaultTimeout
	if sp.Timeout != nil {
		soft = time.Duration(*sp.Timeout) * time.Millisecond
	}
	if soft > 0 {
		hard = soft + hardMargin
	}
	if sp.Hard != nil {
		hard = time.Duration(*sp.Hard) * time.Millisecond
	}
	return soft, hard
}
