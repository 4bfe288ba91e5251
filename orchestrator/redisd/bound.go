package redisd

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// commandLimit is the timeout of a command with a bounded context, including retries.
const commandLimit = 3 * time.Second

// ErrSilent means that Redis did not reply in time.
var ErrSilent = errors.New("no reply from Redis; try again later")

// Bounded returns a context for a request with a waiting client. With it, commands of a Redis client that was passed to Bound
// fail with ErrSilent after three seconds without a reply. The following commands of the request fail immediately for some
// seconds, so that the request finishes.
func Bounded(ctx context.Context) context.Context {
	return context.WithValue(ctx, boundKey{}, new(bound))
}

// Bound makes the commands of rdb respect Bounded. It does not affect other contexts.
func Bound(rdb redis.UniversalClient) { rdb.AddHook(boundHook{}) }

type boundKey struct{}

// bound is the state of a bounded context.
type bound struct {
	silent atomic.Int64 // time of the last command without a reply, in Unix nanoseconds
}

// run calls send, which sends commands and returns their error.
func (b *bound) run(ctx context.Context, send func(context.Context) error) error {
	err := fmt.Errorf("%w: %w", ErrSilent, context.DeadlineExceeded)
	if time.Since(time.Unix(0, b.silent.Load())) < 2*commandLimit {
		return err
	}
	limited, cancel := context.WithTimeoutCause(ctx, commandLimit, err)
	defer cancel()
	sent := send(limited)
	if sent != nil && ctx.Err() == nil && limited.Err() != nil {
		b.silent.Store(time.Now().UnixNano())
		return err
	}
	return sent
}

// boundHook applies Bounded to the commands of a client.
type boundHook struct{}

func (boundHook) DialHook(next redis.DialHook) redis.DialHook { return next }

func (boundHook) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		b, ok := ctx.Value(boundKey{}).(*bound)
		if !ok {
			return next(ctx, cmd)
		}
		return b.run(ctx, func(ctx context.Context) error { return next(ctx, cmd) })
	}
}

func (boundHook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		b, ok := ctx.Value(boundKey{}).(*bound)
		if !ok {
			return next(ctx, cmds)
		}
		err := b.run(ctx, func(ctx context.Context) error { return next(ctx, cmds) })
		if errors.Is(err, ErrSilent) {
			for _, cmd := range cmds {
				cmd.SetErr(err)
			}
		}
		return err
	}
}
