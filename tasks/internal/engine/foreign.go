package engine

import (
	"context"
	"errors"
	"time"

	"github.com/hibiken/asynq"
)

// plainError is the error of a task that was sent with asynq's own client: asynq retries those by its own rules. Asynq
// does not catch a panic of an error's methods, so this error has none of the handler's.
type plainError struct {
	message string
	is      error // asynq.SkipRetry, asynq.RevokeTask or nil
}

func (e plainError) Error() string { return e.message }
func (e plainError) Unwrap() error { return e.is }

// runPlain runs a task that was sent with asynq's own client.
func runPlain(ctx context.Context, h asynq.Handler, t *asynq.Task) error {
	err := h.ProcessTask(ctx, t)
	if err == nil {
		return nil
	}
	e := plainError{message: err.Error()}
	for _, is := range []error{asynq.RevokeTask, asynq.SkipRetry} {
		if errors.Is(err, is) {
			e.is = is
			break
		}
	}
	return e
}

// isPlain reports whether a failed attempt counts as one of asynq's retries. It does for tasks of asynq's own clients
// and for the panics that asynq recovers; panics of our handlers do not reach asynq.
func isPlain(err error) bool { return errors.As(err, new(plainError)) || asynq.IsPanicError(err) }

func retryDelay(n int, err error, t *asynq.Task) time.Duration {
	if isPlain(err) {
		return asynq.DefaultRetryDelayFunc(n, err, t)
	}
	return time.Second
}
