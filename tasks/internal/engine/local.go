package engine

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"muster/tasks/tasktype"
)

// local is shared by the parts of a worker.
type local struct {
	*env
	*life
	cfg   *WorkerConfig
	log   *slog.Logger // of the worker; env.log is the log of the engine
	stats stats
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
		l.log.Warn("step that needs Redis failed and is repeated", "worker", l.cfg.Name, "error", err)
		select {
		case <-l.killed:
			return err
		case <-l.clock.After(wait):
		}
		wait = min(2*wait, 2*time.Second)
	}
}

// after calls f a time after due has had a value, until ctx is done. Without work an idle worker has no timer for it.
func after(ctx context.Context, due <-chan struct{}, d time.Duration, f func(context.Context)) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-due:
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(d):
			f(ctx)
		}
	}
}

// life is how far a worker is towards its end: first no more tasks begin, then nothing waits for handlers any more.
type life struct {
	stop   <-chan struct{} // closed when no more tasks may begin
	killed <-chan struct{} // closed when Run must return without waiting
	halt   func()          // closes stop
	kill   func()          // closes killed
}

func newLife() *life {
	stop, halt := context.WithCancel(context.Background())
	killed, kill := context.WithCancel(context.Background())
	return &life{stop.Done(), killed.Done(), halt, kill}
}

// stopping reports whether no more tasks may begin.
func (l *life) stopping() bool {
	select {
	case <-l.stop:
		return true
	case <-l.killed:
		return true
	default:
		return false
	}
}

type stats struct{ begun, succeeded, failed, retried, recovered atomic.Int64 }

func (s *stats) read() tasktype.WorkerStats {
	return tasktype.WorkerStats{Begun: s.begun.Load(), Succeeded: s.succeeded.Load(), Failed: s.failed.Load(),
		Retried: s.retried.Load(), Recovered: s.recovered.Load()}
}

// storeTimeout bounds the store calls of one step.
const storeTimeout = 30 * time.Second

// limited is a context with a deadline for calls to Redis. Unlike a context of the standard library it needs no
// timer.
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
