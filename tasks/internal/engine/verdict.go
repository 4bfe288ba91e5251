package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"muster/tasks/tasktype"
)

// Verdict is an error of a handler that determines the state of the task. A verdict may wrap another.
type Verdict struct {
	Err       error // never nil, unless Again is set
	Code      string
	Delay     *time.Duration // until the next attempt, or with Again until the next call
	Permanent bool
	Again     bool
}

// Error implements error.
func (v *Verdict) Error() string {
	if v.Again {
		return fmt.Sprintf("again in %s", *v.Delay)
	}
	return v.Err.Error()
}

// Unwrap returns the error that was marked.
func (v *Verdict) Unwrap() error { return v.Err }

// marks combines the verdicts in an error.
type marks struct {
	code      string            // of the outermost verdict that has one, else of the outermost failure
	passed    *tasktype.Failure // of another node, if the error is that failure itself: the node passes it on; else nil
	delay     *time.Duration    // until the next attempt; nil: the task's back-off
	again     *time.Duration    // until the next call, if the error is not a failure; else nil
	permanent bool
}

// maxErrors limits the errors that are read below one error: an Unwrap that returns its receiver never ends.
const maxErrors = 1000

// marksOf reads the marks of an error and of all errors that it wraps, level by level: the outermost mark of each kind
// counts.
func marksOf(err error) marks {
	var m marks
	failure, outer := "", true // outer: there were only verdicts
	level := []error{err}
	for read := 0; len(level) > 0 && read < maxErrors; {
		var below []error
		for _, err := range level {
			if err == nil {
				continue
			}
			read++
			v, ok := err.(*Verdict)
			if ok {
				m.code = cmp.Or(m.code, v.Code)
				m.permanent = m.permanent || v.Permanent
				if v.Again {
					m.again = cmp.Or(m.again, v.Delay)
				} else {
					m.delay = cmp.Or(m.delay, v.Delay)
				}
			} else if f, ok := err.(*tasktype.Failure); ok && f != nil {
				failure = cmp.Or(failure, f.Code)
				if outer && f.Task != "" && f.Node != "" {
					m.passed = f
				}
			}
			outer = outer && ok
			switch e := err.(type) {
			case interface{ Unwrap() error }:
				below = append(below, e.Unwrap())
			case interface{ Unwrap() []error }:
				below = append(below, e.Unwrap()...)
			}
		}
		level = below
	}
	m.code = cmp.Or(m.code, failure)
	if m.permanent || m.delay != nil {
		m.again = nil // the attempt has failed
	}
	return m
}

// IsFailure reports whether err, which a handler has returned, fails the attempt.
func IsFailure(err error) bool { return err != nil && marksOf(err).again == nil && !IsPending(err) }

// IsPending reports whether err means that the task is completed externally, without a failure.
func IsPending(err error) bool { return errors.Is(err, ErrPending) }

// handlerError has the properties of an error that a handler returned. The methods of the error are user code, so
// they are called in the handler's goroutine, where a panic is recovered; handlerError is plain data.
type handlerError struct {
	marks
	message string
}

// verdict returns e as an error of a handler.
func (e *handlerError) verdict() error { return &Verdict{Err: errors.New(e.message), Code: e.code} }

// goexited is the error of a handler that called runtime.Goexit.
func goexited() *handlerError {
	return &handlerError{marks: marks{code: tasktype.CodeError}, message: "the handler ended its goroutine instead of returning"}
}

// readError reads the error that a handler returned in an attempt with the context ctx. It never panics: an error
// whose methods do counts as a panic of the handler.
func (r *Run) readError(ctx context.Context, h *Handler, err error) (e *handlerError) {
	defer func() {
		if p := recover(); p != nil {
			e = r.panicked(p, fmt.Sprintf("reading the handler's error, of type %T: ", err))
		}
	}()
	e = &handlerError{marks: marksOf(err)}
	if e.again != nil {
		return e
	}
	e.message = shorten(err.Error())
	switch {
	case e.code != "":
	case deadlinePassed(ctx) && errors.Is(err, context.DeadlineExceeded):
		e.code = tasktype.CodeTimeout
	case e.permanent:
		e.code = tasktype.CodePermanent
	default:
		e.code = tasktype.CodeError
	}
	if !e.permanent && errors.Is(err, ErrShutdown) {
		e.message += " (but this worker does not stop; return tasks.Again to be called again)"
	}
	return e
}

// deadlinePassed reports whether the deadline of ctx has passed. The deadline itself is asked: a connection that has it from
// ctx may end a little before ctx does.
func deadlinePassed(ctx context.Context) bool {
	deadline, ok := ctx.Deadline()
	return ok && !time.Now().Before(deadline)
}

// panicked logs a panic of user code, and returns it as an error. The value's own methods are user code too:
// fmt catches their panics.
func (r *Run) panicked(value any, where string) *handlerError {
	message := fmt.Sprintf("%spanic: %v", where, value)
	r.w.log.Error("handler panicked", "task", r.Info.Task, "workflow", r.Info.Workflow, "node", r.Info.Node, "panic", message, "stack", string(debug.Stack()))
	return &handlerError{marks: marks{code: tasktype.CodePanic}, message: shorten(message)}
}
