package redistest

import (
	"context"

	"github.com/redis/go-redis/v9"
)

// Calls is a redis.Hook around each call, in which next makes the call. A pipeline is one call of several commands.
type Calls func(ctx context.Context, next func() error, cmds ...redis.Cmder) error

// Before returns a hook that calls f before each command.
func Before(f func(ctx context.Context, cmd redis.Cmder)) Calls {
	return func(ctx context.Context, next func() error, cmds ...redis.Cmder) error {
		for _, cmd := range cmds {
			f(ctx, cmd)
		}
		return next()
	}
}

// DialHook implements redis.Hook.
func (Calls) DialHook(next redis.DialHook) redis.DialHook { return next }

// ProcessHook implements redis.Hook.
func (c Calls) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		return c(ctx, func() error { return next(ctx, cmd) }, cmd)
	}
}

// ProcessPipelineHook implements redis.Hook.
func (c Calls) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		return c(ctx, func() error { return next(ctx, cmds) }, cmds...)
	}
}
