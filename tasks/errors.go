package tasks

import (
	"errors"
	"fmt"
	"time"

	"muster/tasks/internal/engine"
	"muster/tasks/internal/store"
	"muster/tasks/tasktype"
)

// The errors callers branch on.
var (
	// ErrUnknown says that no workflow has this id: it was never sent, its retention is over, or Redis has lost it.
	ErrUnknown = engine.ErrUnknown
	// ErrDuplicate says that a send found a workflow with the same id or unique key.
	ErrDuplicate = engine.ErrDuplicate
	// ErrRevoked matches the failure of a workflow or task that was revoked.
	ErrRevoked = errors.New("revoked")
	// ErrWaitInTask refuses a Wait inside a handler, where it could starve the work it waits for.
	ErrWaitInTask = errors.New("wait inside a task could wait for itself; chain the next step, or answer with a plan")
	// ErrEvicts refuses a Redis that evicts keys when its memory is full: a workflow that loses one may never end.
	// Sends and workers return it while the maxmemory-policy is not noeviction and maxmemory is set.
	ErrEvicts = store.ErrEvicts
	// ErrShutdown is the cause of a handler's context when its worker stops; the task runs again elsewhere.
	ErrShutdown = engine.ErrShutdown
)

// Refused reports whether err is that of a Redis that answers, but takes no writes for now: its disk or its
// memory is full, it has become a replica, or it has too few replicas. A handler that fails with it can return
// [Again], so that no attempt is used up. See [Client.Writable].
func Refused(err error) bool { return store.Refused(err) }

// Failure is why a task did not yield a value: the error of Wait, and the input of [Signature.Rescue] and
// [OnError] tasks. Errors lose their identity in Redis: what is left is the message
// and a code, which is one of package tasktype or was given by [WithCode].
type Failure struct {
	Task     string `json:"task"`
	Node     string `json:"node"`
	Attempts int    `json:"attempts"`
	Message  string `json:"message"`
	Code     string `json:"code"`
}

// Error implements error.
func (f *Failure) Error() string {
	if f.Attempts > 1 {
		return fmt.Sprintf("task %s failed after %d attempts: %s", f.Task, f.Attempts, f.Message)
	}
	return fmt.Sprintf("task %s failed: %s", f.Task, f.Message)
}

// Is reports that f is [ErrRevoked] when it has one of the codes of revocation.
func (f *Failure) Is(target error) bool {
	return target == ErrRevoked && (f.Code == tasktype.CodeRevoked || f.Code == tasktype.CodeExpired)
}

// codeOf returns the code of err if it is itself a *Failure, and else none.
func codeOf(err error) string {
	if f, ok := err.(*Failure); ok && f != nil {
		return f.Code
	}
	return ""
}

// Permanent returns err marked as not worth a retry: the task fails, whatever else err is marked with.
// Permanent(nil) is an error, too.
func Permanent(err error) error {
	return &engine.Verdict{Err: orMissing(err, "tasks.Permanent(nil)", returnNil), Permanent: true}
}

// RetryIn returns err with the time to wait before the next attempt, instead of the task's [Backoff]. It counts as an
// attempt, and there is no next one after the last that [MaxRetry] allows. RetryIn(d, nil) is an error, too: [Again]
// is for a task that has not failed. With a negative d the task fails for good.
func RetryIn(d time.Duration, err error) error {
	err = orMissing(err, fmt.Sprintf("tasks.RetryIn(%s, nil)", d),
		fmt.Sprintf("return tasks.Again(%s) to be called again without an error", d))
	if d < 0 {
		return misused(fmt.Errorf("tasks.RetryIn(%s, …): the delay is negative: %w", d, err))
	}
	return &engine.Verdict{Err: err, Delay: &d}
}

// WithCode returns err with the code that its [Failure] will carry. WithCode(code, nil) is an error, too. With an
// empty code the task fails for good.
func WithCode(code string, err error) error {
	err = orMissing(err, fmt.Sprintf("tasks.WithCode(%q, nil)", code), returnNil)
	if code == "" {
		return misused(fmt.Errorf(`tasks.WithCode("", …): the code is empty: %w`, err))
	}
	return &engine.Verdict{Err: err, Code: code}
}

// Again, returned by a handler, asks to be called again in d. It uses up no attempt and records no
// error; until then no worker is held. It may be wrapped, and joined with other errors, unless they are marked with
// [Permanent] or [RetryIn]: these say that the attempt has failed. With a negative d the task fails for good.
func Again(d time.Duration) error {
	if d < 0 {
		return misused(fmt.Errorf("tasks.Again(%s): the delay is negative; use 0 to be called again at once", d))
	}
	return &engine.Verdict{Delay: &d, Again: true}
}

// IsAgain reports whether a handler that returns err is called again without having failed, see [Again]: a
// middleware should not take err for a failure.
func IsAgain(err error) bool { return engine.IsAgain(err) }

const returnNil = "return nil if the task has succeeded"

// orMissing returns err, or if it is nil, an error that names the call and the way out.
func orMissing(err error, call, wayOut string) error {
	if err == nil {
		return fmt.Errorf("%s: there is no error; %s", call, wayOut)
	}
	return err
}

// misused returns err, which says how a function of this package was misused: another attempt would do the same.
func misused(err error) error { return &engine.Verdict{Err: err, Permanent: true} }
