package engine

import (
	"context"
	"errors"
	"time"

	"github.com/hibiken/asynq"
)

// plainError is the error of a task that is none of ours: asynq retries those by its own rules. Asynq calls
// the methods of an error where it catches no panic, so nothing of the handler's own is left in it.
type plainError struct {
	message string
	is      error // asynq.SkipRetry, asynq.RevokeTask or nil
}

func (e plainError) Error() string { return e.message }

func (e plainError) Unwrap() error { return e.is }

// plain runs a task that was sent with asynq's own client.
func (w *Worker) plain(ctx context.Context, t *asynq.Task) error {
	err := w.cfg.Plain.ProcessTask(ctx, t)
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

// isPlain reports whether a failed attempt uses up one of asynq's: ours never do, but for what a newer
// release handed over. Asynq itself catches the panics of its handlers; those of ours do not get that far.
func isPlain(err error) bool {
	return errors.As(err, new(plainError)) || errors.As(err, new(newerError)) || asynq.IsPanicError(err)
}

func retryDelay(n int, err error, t *asynq.Task) time.Duration {
	switch {
	case errors.As(err, new(newerError)):
		return min(time.Second<<min(n, 6), time.Minute)
	case isPlain(err):
		return asynq.DefaultRetryDelayFunc(n, err, t)
	}
	return time.Second
}
