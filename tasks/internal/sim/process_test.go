package sim

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"muster/tasks/internal/engine"
)

// The errors of simulated connections.
var (
	errCut  = errors.New("simulated: connection reset by peer")
	errDead = errors.New("simulated: this process is dead")
)

// process is a simulated process, with its own memory and clock: a worker or a sender. It shares only Redis with the
// others. Every call to it waits until the scheduler lets it continue.
type process struct {
	h      *history
	name   string
	rdb    *redis.Client
	skew   time.Duration    // that its clock is ahead of Redis's
	calls  int              // made so far
	timers atomic.Int64     // set so far
	took   map[string][]int // the events in which it was given a node
	dead   bool
	direct bool      // it does not wait for the scheduler, because the scheduler itself asks
	frozen time.Time // none of its steps continues before
	sends  string    // ID of the workflow that it sends, if that has a generated one

	engine   *engine.Engine             // of its client
	handlers map[string]*engine.Handler // of its worker
}

// keeper is an [engine.Hook] that records the parts of a process.
type keeper struct{ p *process }

func (k keeper) EngineMade(e *engine.Engine)                    { k.p.engine = e }
func (k keeper) WorkerMade(handlers map[string]*engine.Handler) { k.p.handlers = handlers }

// connection is the connection of a process.
type connection struct {
	*redis.Client
	keeper
}

// step is a call that a process waits for.
type step struct {
	from *process
	nth  int // of its calls
	came int // the round in which the scheduler first saw it; 0 before
	what text
	cmds []redis.Cmder // empty if the call is not one to Redis
	done chan error
}

// newProcess returns a process whose connection the scheduler controls.
func (h *history) newProcess(name string, skew time.Duration) *process {
	p := &process{h: h, name: name, skew: skew, took: map[string][]int{}}
	p.rdb = redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}, Dialer: func(context.Context, string, string) (net.Conn, error) {
		return nil, errors.New("a process of the simulation has dialed: subscriptions are not simulated")
	}})
	p.rdb.AddHook(p)
	return p
}

// DialHook implements redis.Hook.
func (p *process) DialHook(next redis.DialHook) redis.DialHook { return next }

// ProcessHook implements redis.Hook.
func (p *process) ProcessHook(redis.ProcessHook) redis.ProcessHook {
	return func(_ context.Context, cmd redis.Cmder) error { return p.wait(p.h.describe([]redis.Cmder{cmd}), cmd) }
}

// ProcessPipelineHook implements redis.Hook.
func (p *process) ProcessPipelineHook(redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(_ context.Context, cmds []redis.Cmder) error {
		err := p.wait(p.h.describe(cmds), cmds...)
		for _, c := range cmds {
			if err != nil {
				c.SetErr(err)
			} else if c.Err() != nil {
				err = c.Err()
				break
			}
		}
		return err
	}
}

// wait waits until the scheduler has taken a step of p, and returns its error.
func (p *process) wait(what text, cmds ...redis.Cmder) error {
	if p.direct {
		p.h.exec(cmds...)
		return cmds[0].Err()
	}
	s := &step{from: p, what: what, cmds: cmds, done: make(chan error, 1)}
	p.h.mu.Lock()
	if p.dead {
		p.h.mu.Unlock()
		return errDead
	}
	p.calls++
	s.nth = p.calls
	p.h.parked = append(p.h.parked, s)
	p.h.mu.Unlock()
	return <-s.done
}

// describe names commands for the history.
func (h *history) describe(cmds []redis.Cmder) text {
	return sync.OnceValue(func() string {
		var all []string
		for _, c := range cmds {
			all = append(all, h.describeOne(c))
		}
		return strings.Join(all, "; ")
	})
}

// describeOne names a script without the prefix of its shard.
func (h *history) describeOne(cmd redis.Cmder) string {
	args := cmd.Args()
	words := []string{cmd.Name()}
	if text, ok := at(args, 1).(string); ok && strings.HasPrefix(cmd.Name(), "eval") {
		if name := h.scripts.name(text); name != "" {
			words[0] = name
			if i := slices.Index(h.prefixes(), fmt.Sprint(at(args, 3))); i >= 0 && h.shards > 1 {
				words[0] += fmt.Sprint(" {", i, "}")
			}
		}
		args = append([]any{nil}, scriptArgs(cmd)...)
	}
	for _, a := range args[1:] {
		switch s := a.(type) {
		case string:
			words = append(words, clip(repeatable(s), h.width))
		case []byte:
			words = append(words, clip(repeatable(string(s)), h.width))
		default:
			words = append(words, fmt.Sprint(a))
		}
	}
	return clip(strings.Join(words, " "), 4*h.width)
}

// scriptArgs returns the arguments of a call of a script.
func scriptArgs(cmd redis.Cmder) []any {
	args := cmd.Args()
	if len(args) < 3 || !strings.HasPrefix(cmd.Name(), "eval") {
		return nil
	}
	var keys int
	fmt.Sscan(fmt.Sprint(args[2]), &keys)
	return args[min(3+keys, len(args)):]
}

// answered describes the reply of a script for the history.
func (h *history) answered(cmd redis.Cmder) text {
	c, ok := cmd.(*redis.Cmd)
	err := cmd.Err() // a step may get another one
	return func() string {
		switch {
		case ok && err == nil:
			return " → " + clip(repeatable(strings.ReplaceAll(fmt.Sprint(c.Val()), "<nil>", "-")), 3*h.width)
		case err != nil && !errors.Is(err, redis.Nil):
			return " → " + clip(err.Error(), 100)
		}
		return ""
	}
}

// repeatable returns a text without the parts that differ in two histories of one seed.
func repeatable(s string) string {
	return nonces.ReplaceAllString(secrets.ReplaceAllString(s, "$1#$3"), "~")
}

func at(list []any, i int) any {
	if i < len(list) {
		return list[i]
	}
	return nil
}

func clip(s string, n int) string {
	if len(s) > n {
		return s[:n] + "…"
	}
	return s
}
