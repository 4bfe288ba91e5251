package workqueue

import (
	"context"
	"fmt"
	"runtime/debug"
	"time"
)

// finished is a job whose handler has returned.
type finished struct {
	*job
	outcome Outcome
	err     error
}

// work runs the handlers of buffered items, one after the other.
func (p *Pool) work(ctx context.Context, h *held, buffer <-chan *job, out chan<- finished) {
	for j := range buffer {
		own, cancel := context.WithCancelCause(ctx)
		limited, end := context.WithTimeoutCause(own, p.cfg.Timeout,
			fmt.Errorf("the handler took longer than %v", p.cfg.Timeout))
		began := time.Now()
		h.noteStart(j, cancel, began.Add(p.cfg.Timeout))
		o, err := p.handle(limited, j.Leased)
		p.observe(j.Leased, time.Since(began))
		if err != nil && limited.Err() != nil {
			err = fmt.Errorf("%w: %w", context.Cause(limited), err)
		}
		end()
		cancel(nil)
		out <- finished{j, o, err}
	}
}

// handle calls the handler of an item. A panic is an error.
func (p *Pool) handle(ctx context.Context, it Leased) (o Outcome, err error) {
	defer func() {
		if r := recover(); r != nil {
			p.cfg.Logger.ErrorContext(ctx, "a handler panicked", "queue", p.q.name, "item", it.ID, "panic", r, "stack", string(debug.Stack()))
			err = fmt.Errorf("panic: %v", r)
		}
	}()
	h, err := p.mux.find(it.Kind)
	if err != nil {
		return Outcome{}, err
	}
	o, err = h(ctx, it)
	if o.State == "" {
		o.State = StateDone
	}
	return o, err
}

// observe reports a run.
func (p *Pool) observe(it Leased, took time.Duration) {
	if p.cfg.Observe == nil {
		return
	}
	kind := it.Kind
	if _, ok := p.mux.handlers[kind]; !ok {
		kind = "unknown"
	}
	p.cfg.Observe(Run{kind, it.Waited, took})
}
