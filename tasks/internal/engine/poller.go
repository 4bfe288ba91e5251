package engine

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"
)

// poller is the connection of asynq's server. It recognises asynq's dequeue script by its keys. When that has found all
// queues empty, the call blocks until the worker is woken, so that the server does not poll. A queue that has all the
// slots it may have counts as empty. All other calls are passed on.
//
// Which queues were empty is kept by name, not as a number: asynq asks in a random order, begins again after a task or
// an error, and asks by another command when Redis does not know the script yet.
type poller struct {
	redis.UniversalClient
	full   func(queue string) bool // whether a queue may have no more slots now
	queues int                     // number of queues
	every  time.Duration           // longest sleep
	wake   chan struct{}           // gets a value when there may be work or a free slot
	closed <-chan struct{}         // closed when the worker stops: nothing sleeps any more

	empty map[string]bool // queues found empty since the last sleep; used only by the goroutine of asynq's processor
}

// EvalSha implements redis.Scripter.
func (p *poller) EvalSha(ctx context.Context, sha string, keys []string, args ...any) *redis.Cmd {
	if len(keys) != 4 || !strings.HasSuffix(keys[0], "}:pending") || !strings.HasSuffix(keys[3], "}:lease") {
		return p.UniversalClient.EvalSha(ctx, sha, keys, args...)
	}
	queue := strings.TrimSuffix(strings.TrimPrefix(keys[0], "asynq:{"), "}:pending")
	cmd := redis.NewCmd(ctx)
	if cmd.SetErr(redis.Nil); !p.full(queue) {
		cmd = p.UniversalClient.EvalSha(ctx, sha, keys, args...)
	}
	switch err := cmd.Err(); {
	case err == nil, redis.HasErrorPrefix(err, "NOSCRIPT"):
		delete(p.empty, queue)
	case !errors.Is(err, redis.Nil):
		p.sleep(200 * time.Millisecond) // without this asynq would ask again at once
	default:
		if p.empty[queue] = true; len(p.empty) == p.queues {
			clear(p.empty)
			p.sleep(p.every)
		}
	}
	return cmd
}

func (p *poller) sleep(d time.Duration) {
	select {
	case <-p.wake:
	case <-p.closed:
	case <-time.After(d):
	}
}

// signal sends to a channel with room for one value. If one is there already, it does nothing.
func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

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
