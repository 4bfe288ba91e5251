package tasks

import (
	"errors"
	"fmt"
	"time"

	"muster/tasks/internal/engine"
	"muster/tasks/internal/graph"
	"muster/tasks/internal/store"
	"muster/tasks/tasktype"
)

// The errors that callers test for with errors.Is.
var (
	// ErrNotFound means that there is no such workflow, node, schedule or worker. A workflow was never sent, its retention is over,
	// or Redis has lost it. A node has not been added yet. A worker is not running.
	ErrNotFound = store.ErrNotFound
	// ErrDuplicate means that a send found a workflow with the same id or unique key.
	ErrDuplicate = engine.ErrDuplicate
	// ErrInvalid means that a signature or a signal cannot be sent, a schedule cannot be put, an option is out of range or does not fit the node that it is for,
	// a worker cannot run this number of tasks at once, or the period of a backfill is invalid or has too many ticks.
	ErrInvalid = graph.ErrInvalid
	// ErrRevoked matches the failure of a workflow or task that was revoked.
	ErrRevoked = tasktype.ErrRevoked
	// ErrCancelled matches the failure of a task that [Workflow.Cancel] or a [Deadline] ended, and is the cause of the contexts of
	// its handlers.
	ErrCancelled = tasktype.ErrCancelled
	// ErrDeadline is an ErrCancelled that only matches after a [Deadline].
	ErrDeadline = tasktype.ErrDeadline
	// ErrRunning means that the workflow has not ended, so that it cannot be retried or deleted.
	ErrRunning = engine.ErrRunning
	// ErrFull means that the workflow keeps 1,000 signals of the task, or 16 MiB of them, that no node has received yet, or that a
	// schedule has 1,000 requested ticks that were not sent yet.
	ErrFull = store.ErrFull
	// ErrCompensated means that a retry would repeat a step of [Compensate] whose compensation has failed.
	ErrCompensated = engine.ErrCompensated
	// ErrDamaged means that the data of the workflow in Redis cannot be decoded, so that it cannot be retried.
	ErrDamaged = engine.ErrDamaged
	// ErrEnded means that the workflow has ended, so that it cannot be cancelled and receives no signals, or that it has succeeded, so
	// that there is nothing to retry.
	ErrEnded = engine.ErrEnded
	// ErrWaitInTask is returned by a Wait inside a handler, where it could keep its own work from running.
	ErrWaitInTask = errors.New("wait inside a task could wait for itself; chain the next step, or return a plan")
	// ErrEvicts means that Redis evicts keys when its memory is full: a workflow that loses a key may never end.
	// Sends and workers return it while maxmemory is set and the maxmemory-policy is not noeviction.
	ErrEvicts = store.ErrEvicts
	// ErrCursor means that a cursor does not come from the listing that it was given to.
	ErrCursor = store.ErrCursor
	// ErrShutdown is the cause of a handler's context when its worker stops; the task runs again elsewhere.
	ErrShutdown = engine.ErrShutdown
	// ErrCompleted means that the node of a token has ended: it was completed or revoked, or its last attempt failed. Only the first
	// result is stored, so a call that is repeated because its reply was lost can return this error.
	ErrCompleted = engine.ErrCompleted
	// ErrStale means that the token is not valid for the node, or no longer: its attempt has ended and another one follows,
	// or a new token has replaced it.
	ErrStale = engine.ErrStale
	// ErrNotOpen means that the node does not wait for external completion: it has not started, or its handler is running.
	ErrNotOpen = engine.ErrNotOpen
)

// Refused reports whether err means that Redis responds, but does not accept writes at present: its disk or its memory is
// full, it has become a replica, or it has too few replicas. A handler that gets such an error can return
// [Again], so that no attempt is used up. See [Client.Writable].
func Refused(err error) bool { return store.Refused(err) }

// Unavailable reports whether err means that Redis was unreachable, timed out or returned an error, such as one for which
// [Refused] is true.
func Unavailable(err error) bool { return store.Unavailable(err) }

// Failure is the reason why a task has no value: the error of Wait, and the input of the tasks of [Signature.Rescue]
// and [OnError]. The Go type of a handler's error is not kept in Redis; its message is, and a code, which is
// one of package tasktype or was set with [WithCode]. A handler that returns the failure of another task, such as that of [Try],
// fails with it: Task and Node remain those of the task that failed first.
type Failure = tasktype.Failure

// Permanent marks err as not worth a retry: the task fails, whatever else err is marked with.
// Permanent(nil) is also an error.
func Permanent(err error) error {
	return &engine.Verdict{Err: orMissing(err, "tasks.Permanent(nil)", returnNil), Permanent: true}
}

// RetryIn marks err with the delay before the next attempt, which overrides the task's [Backoff]. The attempt counts:
// after the last one that [MaxRetry] allows, the task fails. RetryIn(d, nil) is also an error: use [Again] in
// a task that has not failed. A negative d fails the task without a retry.
func RetryIn(d time.Duration, err error) error {
	err = orMissing(err, fmt.Sprintf("tasks.RetryIn(%s, nil)", d),
		fmt.Sprintf("return tasks.Again(%s) to be called again without an error", d))
	if d < 0 {
		return misused(fmt.Errorf("tasks.RetryIn(%s, …): the delay is negative: %w", d, err))
	}
	return &engine.Verdict{Err: err, Delay: &d}
}

// WithCode marks err with the code of its [Failure]. WithCode(code, nil) is also an error. An empty code fails the
// task without a retry.
func WithCode(code string, err error) error {
	err = orMissing(err, fmt.Sprintf("tasks.WithCode(%q, nil)", code), returnNil)
	if code == "" {
		return misused(fmt.Errorf(`tasks.WithCode("", …): the code is empty: %w`, err))
	}
	return &engine.Verdict{Err: err, Code: code}
}

// Again returns an error with which a handler asks to be called again after d. It uses up no attempt, is not recorded
// as a failure, and holds no worker until then. It may be wrapped, and joined with other errors; but with one that is
// marked with [Permanent] or [RetryIn] the attempt has failed. A negative d fails the task without a retry.
func Again(d time.Duration) error {
	if d < 0 {
		return misused(fmt.Errorf("tasks.Again(%s): the delay is negative; use 0 to be called again at once", d))
	}
	return &engine.Verdict{Delay: &d, Again: true}
}

// IsFailure reports whether err, which a handler has returned, fails the attempt: it is not nil, does not ask for another call by
// [Again], and is not the error of [ResultPending]. It is for middleware.
func IsFailure(err error) bool { return engine.IsFailure(err) }

const returnNil = "return nil if the task has succeeded"

// orMissing returns err or, if it is nil, an error that names the call and the alternative.
func orMissing(err error, call, instead string) error {
	if err == nil {
		return fmt.Errorf("%s: the error is nil; %s", call, instead)
	}
	return err
}

// misused marks err as permanent: another attempt would misuse the function in the same way.
func misused(err error) error { return &engine.Verdict{Err: err, Permanent: true} }
