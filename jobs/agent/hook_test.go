package agent_test

import (
	"context"

	"github.com/redis/go-redis/v9"
)

// hook is called with the commands of a client, which next sends.
type hook func(ctx context.Context, next func() error, cmds ...redis.Cmder) error

func (hook) DialHook(next redis.DialHook) redis.DialHook { return next }

func (h hook) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		return h(ctx, func() error { return next(ctx, cmd) }, cmd)
	}
}

func (h hook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		return h(ctx, func() error { return next(ctx, cmds) }, cmds...)
	}
}

// marked is a key of a context.
type marked struct{}
