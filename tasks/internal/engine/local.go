package engine

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"sync/atomic"
	"time"
)

// local is what the parts of a worker share.
type local struct {
	*env
	*life
	cfg     *WorkerConfig
	log     *slog.Logger // of the worker; that of env is the engine's
	stats   stats
	damaged atomic.Bool // a call to Redis failed, so that a key may be damaged
}

// insist repeats a step until it succeeds, or the worker is killed.
func (l *local) insist(step func() error) error {
	wait := 20 * time.Millisecond
	for {
		err := step()
		if err == nil {
			return nil
		}
		select {
		case <-l.killed:
			return err
		default:
		}
		l.damaged.Store(true)
		l.log.Warn("step that needs Redis failed and is repeated", "worker", l.cfg.Name, "error", err)
		select {
		case <-l.killed:
			return err
		case <-l.clock.After(wait):
		}
		wait = min(2*wait, 2*time.Second)
	}
}

// storeTimeout bounds the store calls of one step.
const storeTimeout = 30 * time.Second

// limited is a context with a deadline for calls to Redis. Unlike that of the standard library it needs no timer.
type limited struct {
	context.Context
	until time.Time
}

// within returns a context for the store calls of one step. It does not end with ctx: a worker that stops must still
// store its results.
func within(ctx context.Context) context.Context {
	return limited{context.WithoutCancel(ctx), time.Now().Add(storeTimeout)}
}

// Deadline implements context.Context.
func (l limited) Deadline() (time.Time, bool) { return l.until, true }

// Err implements context.Context.
func (l limited) Err() error {
	if time.Now().After(l.until) {
		return context.DeadlineExceeded
	}
	return nil
}

// jitter returns a random time from d to 2d.
func jitter(d time.Duration) time.Duration { return d + rand.N(d) }
