package engine

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

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
	full   func(queue string) bool     // whether a queue may have no more slots now
	queues int                         // number of queues
	every  time.Duration               // longest sleep
	wake   chan struct{}               // gets a value when there may be work or a free slot
	closed chan struct{}               // closed when the worker stops: nothing sleeps any more
	pools  func(queue string) []string // of a queue, for which it calls the script too; nil for none
	paused func(ctx context.Context, queue string) (bool, error)

	source string // of asynq's dequeue script

	empty map[string]bool // queues found empty since the last sleep; used only by the goroutine of asynq's processor
}

// EvalSha implements redis.Scripter.
func (p *poller) EvalSha(ctx context.Context, sha string, keys []string, args ...any) *redis.Cmd {
	if len(keys) != 4 || !strings.HasSuffix(keys[0], "}:pending") || !strings.HasSuffix(keys[3], "}:lease") {
		return p.UniversalClient.EvalSha(ctx, sha, keys, args...)
	}
	queue := strings.TrimSuffix(strings.TrimPrefix(keys[0], "asynq:{"), "}:pending")
	cmd := redis.NewCmd(ctx)
	switch cmd.SetErr(redis.Nil); {
	case p.full(queue):
	case p.source == "" && p.pools != nil:
		cmd.SetErr(noScript{}) // asynq calls Eval
	default:
		cmd = p.UniversalClient.EvalSha(ctx, sha, keys, args...)
		if pool := p.dequeue(ctx, cmd.Err(), queue, keys, args); pool != nil {
			cmd = pool
		}
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

// noScript makes asynq send the source of a script.
type noScript struct{}

func (noScript) Error() string { return "NOSCRIPT no matching script" }
func (noScript) RedisError()   {}

// Eval implements redis.Scripter.
func (p *poller) Eval(ctx context.Context, script string, keys []string, args ...any) *redis.Cmd {
	if len(keys) == 4 && strings.HasSuffix(keys[0], "}:pending") && strings.HasSuffix(keys[3], "}:lease") {
		p.source = script
	}
	return p.UniversalClient.Eval(ctx, script, keys, args...)
}

// dequeue calls asynq's dequeue script for the pools of a queue that was empty. It returns nil if there is no task.
func (p *poller) dequeue(ctx context.Context, err error, queue string, keys []string, args []any) *redis.Cmd {
	if !errors.Is(err, redis.Nil) {
		return nil
	}
	if p.pools == nil {
		return nil
	}
	for _, pool := range p.pools(queue) {
		if paused, err := p.paused(ctx, queue); paused || err != nil {
			return nil
		}
		of := func(key string) string { return strings.Replace(key, "{"+queue+"}", "{"+pool+"}", 1) }
		theirs, with := make([]string, len(keys)), slices.Clone(args)
		for i, key := range keys {
			theirs[i] = of(key)
		}
		for i := range with {
			if prefix, ok := with[i].(string); ok {
				with[i] = of(prefix)
			}
		}
		if cmd := p.UniversalClient.Eval(ctx, p.source, theirs, with...); !errors.Is(cmd.Err(), redis.Nil) {
			return cmd
		}
	}
	return nil
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

// signal sends to a channel with room for one value. If one is there already, it does nothing.
func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
