package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync/atomic"
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

// call runs the handler under its time limits, in this goroutine: to start one for it wakes a thread, which costs more than a short task. If the
// slot must be freed before the handler returns, or the handler ends the goroutine, the caller has lost the run: rest gets the outcome in another
// goroutine, without blocking it, and call returns false, or not at all.
func (r *Run) call(h *Handler, input []byte, rest func(callResult)) (a callResult, here bool) {
	soft, hard := limits(r.spec)
	ctx, stop := r.ctx, context.CancelFunc(func() {})
	if soft > 0 {
		ctx, stop = context.WithTimeout(ctx, soft)
	}
	var timer *time.Timer
	var ended atomic.Bool
	end := func() bool {
		if ended.Swap(true) {
			return false
		}
		r.w.runs.remove(r)
		stop()
		if timer != nil {
			timer.Stop()
		}
		return true
	}
	lose := func(a callResult) {
		if end() {
			rest(a)
		}
	}
	r.mu.Lock()
	cause := r.cause
	r.lose = lose
	if hard > 0 {
		timer = time.AfterFunc(hard, func() { r.free(errHard) })
	}
	r.mu.Unlock()
	if cause = cmp.Or(cause, r.w.runs.add(r)); cause != nil {
		return callResult{ended: cause}, end()
	}
	a = r.handle(ctx, h, input, lose)
	return a, end()
}

// compute calls a function of the user as a handler is called. It returns the outcome of the run if that fails.
func (r *Run) compute(h *Handler, f func()) *callResult {
	h = &Handler{Opts: h.Opts, Run: func(context.Context, []byte) (HandlerResult, error) { f(); return HandlerResult{}, nil }}
	done := make(chan callResult, 1)
	go func() {
		if a, here := r.call(h, nil, func(a callResult) { done <- a }); here {
			done <- a
		}
	}()
	if a := <-done; a.err != nil || a.ended != nil {
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

// handle calls the handler with its middleware, and returns how that ended. lose gets it, too, unless user code has returned.
func (r *Run) handle(ctx context.Context, h *Handler, input []byte, lose func(callResult)) (a callResult) {
	returned := false
	defer func() {
		if !returned {
			a = callResult{err: goexited()}
			if p := recover(); p != nil {
				a.err = r.panicked(p, "") // the goroutine can end nevertheless: a deferred function has panicked during runtime.Goexit
			}
		}
		if a = a.under(context.Cause(ctx)); !returned {
			lose(a)
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
	switch err := next(ctx); {
	case err == nil:
		a.answer = answer
	case IsPending(err):
		a.pending = true
		_ = errors.As(err, &a.leased)
	default:
		a.err = r.readError(ctx, h, err)
	}
	returned = true
	return a
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
