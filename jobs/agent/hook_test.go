package agent_test

import (
	"context"
	"net"
	"sync/atomic"

	"github.com/redis/go-redis/v9"
)

// commandCount counts the commands of a client.
type commandCount struct{ n, marked atomic.Int64 } // marked: with the key marked in their context

func (c *commandCount) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) { return next(ctx, network, addr) }
}

func (c *commandCount) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		c.add(ctx, cmd)
		return next(ctx, cmd)
	}
}

func (c *commandCount) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		c.add(ctx, cmds...)
		return next(ctx, cmds)
	}
}

// add counts commands, without those of a new connection.
func (c *commandCount) add(ctx context.Context, cmds ...redis.Cmder) {
	for _, cmd := range cmds {
		if name := cmd.Name(); name == "hello" || name == "client" {
			continue
		}
		c.n.Add(1)
		if ctx.Value(marked{}) != nil {
			c.marked.Add(1)
		}
	}
}

// afterMarked calls do after each command whose context has the key marked.
type afterMarked struct {
	commandCount
	do func()
}

type marked struct{}

func (a *afterMarked) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		err := next(ctx, cmd)
		if err == nil && ctx.Value(marked{}) != nil {
			a.do()
		}
		return err
	}
}
