package engine

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// poller is the connection that asynq's server works on. It knows asynq's dequeue script by the names of its keys: a
// server that found its queues empty sleeps until it is woken, where it would poll, and a queue whose tasks have all
// slots they may have counts as empty. Whatever it does not know it passes on.
type poller struct {
	redis.UniversalClient
	full   func(queue string) bool
	queues int
	every  time.Duration // longest sleep
	wake   chan struct{} // has a value when there may be work or a slot
	closed chan struct{}

	empty int // queues found empty in this round; only asynq's processor touches it
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
		p.empty = 0
	case !errors.Is(err, redis.Nil):
		p.sleep(200 * time.Millisecond) // asynq would ask again at once
	default:
		if p.empty++; p.empty >= p.queues {
			p.empty = 0
			p.sleep(p.every)
		}
	}
	return cmd
}

func (p *poller) sleep(d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-p.wake:
	case <-p.closed:
	case <-t.C:
	}
}

// ring puts a value into a channel that holds one.
func ring(bell chan struct{}) {
	select {
	case bell <- struct{}{}:
	default:
	}
}
