package workqueue

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"runtime/debug"
	"slices"
	"strings"
	"time"
	"unicode/utf8"
)

// Handler does the work of an item. The zero Outcome is Done. An error
// means that the run failed: the item is tried again after a back-off while it
// has attempts left, unless the error is one of Permanent, RetryAfter, Postpone
// or NotNow. The
// context ends at the item's deadline, when its lease is lost, and when the
// pool stops.
type Handler func(ctx context.Context, it Leased) (Outcome, error)

// Handlers are the handlers of a pool by the kind of item.
type Handlers map[string]Handler

// verdict is an error that determines the state of the item.
type verdict struct {
	error
	prefix    string
	after     time.Duration // below 0: back-off
	permanent bool
	free      bool   // no attempt is counted
	back      bool   // nothing was done: the item keeps its place
	held      string // resource key that this pool passes over
	hold      time.Duration
}

func (v *verdict) Unwrap() error { return v.error }

// Permanent marks an error after which the item is not tried again.
func Permanent(err error) error { return &verdict{error: err, permanent: true} }

// RetryAfter marks an error after which the item is tried again in d.
func RetryAfter(d time.Duration, err error) error { return &verdict{error: err, after: max(d, 0)} }

// Postpone delays the item for d, without counting an attempt: nothing was
// tried.
func Postpone(d time.Duration, reason error) error {
	return &verdict{error: reason, after: max(d, 0), free: true}
}

// NotNow returns the item to the queue as if it had not been leased, because the
// resource of a key cannot be used before d has passed: nothing was tried, no
// attempt is counted, the item keeps its place, and until then the pool leases
// no other item of the resource.
func NotNow(key string, d time.Duration, reason error) error {
	return &verdict{error: reason, after: max(d, 0), free: true, back: true, held: key, hold: max(d, 0)}
}

// HoldBack adds to an error of a handler that the pool leases no item of the
// resource of a key before d has passed.
func HoldBack(key string, d time.Duration, err error) error {
	v := verdict{error: err, after: -1}
	if found := (*verdict)(nil); errors.As(err, &found) {
		v = *found
		v.error = err
	}
	v.held, v.hold = key, max(d, 0)
	return &v
}

// Invalid marks the error of a payload that the handler cannot take.
func Invalid(err error) error {
	return &verdict{error: err, prefix: "artifact_validation_failed", after: -1}
}

// judge returns the verdict of a handler's error.
func judge(err error) verdict {
	v := verdict{error: err, after: -1}
	if found := (*verdict)(nil); errors.As(err, &found) {
		v = *found
		v.error = err
	}
	if v.prefix == "" {
		v.prefix = "pipeline_error"
	}
	text := strings.ToValidUTF8(err.Error(), "\uFFFD")
	if utf8.RuneCountInString(text) > 100 {
		text = string([]rune(text)[:100])
	}
	v.error = fmt.Errorf("%s: %s", v.prefix, text)
	return v
}

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
		if v := (*verdict)(nil); !errors.As(err, &v) || !v.back {
			p.observe(j.Leased, time.Since(began))
		}
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
	h := p.handlers[it.Kind]
	if h == nil {
		return Outcome{}, Permanent(fmt.Errorf("no handler for kind %q; there are %s", it.Kind, strings.Join(slices.Sorted(maps.Keys(p.handlers)), ", ")))
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
	if _, ok := p.handlers[kind]; !ok {
		kind = "unknown"
	}
	p.cfg.Observe(Run{kind, it.Waited, took})
}
