package taskstest

import (
	"context"
	"log/slog"
	"maps"
	"sync"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"muster/tasks"
	"muster/tasks/internal/engine"
)

// Fleet runs the tasks of a Mux during calls of [Do], [Fleet.Drain] and [Fleet.Advance]. Use it from one goroutine;
// handlers may use its client, too. It is closed at the end of the test.
type Fleet struct {
	tb     testing.TB
	client *tasks.Client
	eng    *engine.Engine
	redis  *miniredis.Miniredis

	handlers map[string]*engine.Handler
	workers  map[string]*engine.Worker // by queue
	turn     sync.Mutex                // held by the task that runs

	mu    sync.Mutex // guards the fields below
	now   time.Time
	calls []Call
	wakes []engine.Wake              // sent, but not yet served
	bound map[string]*engine.Handler // of the worker that package tasks made last
}

// Option is an option of a fleet, such as [Stub].
type Option func(*Fleet)

// New returns a fleet that runs the tasks of mux. Its clock starts at the time of the call and does not move while
// tasks run.
func New(tb testing.TB, mux *tasks.Mux, opts ...Option) *Fleet {
	tb.Helper()
	f := &Fleet{tb: tb, redis: miniredis.NewMiniRedis(), workers: map[string]*engine.Worker{}, now: time.Now().Truncate(time.Millisecond)}
	if err := f.redis.Start(); err != nil {
		tb.Fatalf("start a Redis in memory: %v", err)
	}
	f.redis.SetTime(f.now)
	f.redis.ClockTTL(true)
	rdb := redis.NewClient(&redis.Options{Addr: f.redis.Addr(), ContextTimeoutEnabled: true})
	f.client = tasks.NewClient(conn{rdb, f})
	tb.Cleanup(func() {
		for _, w := range f.workers {
			w.Kill()
		}
		_ = f.client.Close()
		_ = rdb.Close()
		f.redis.Close()
	})
	f.handlers = maps.Clone(f.handlersOf(mux))
	for _, o := range opts {
		o(f)
	}
	for name, h := range f.handlers {
		f.handlers[name] = f.recorded(h)
	}
	return f
}

// conn is the connection of a fleet, and an [engine.Hook]: engines and workers that use it belong to the fleet.
type conn struct {
	redis.UniversalClient
	f *Fleet
}

// EngineMade sets the clock and the wake function of an engine to those of the fleet.
func (c conn) EngineMade(e *engine.Engine) {
	e.SetClock(jumping{c.f})
	e.SetWaker(c.f.wake)
	if c.f.eng == nil {
		c.f.eng = e
	}
}

// WorkerMade stores the handlers of a worker in bound.
func (c conn) WorkerMade(handlers map[string]*engine.Handler) {
	c.f.mu.Lock()
	defer c.f.mu.Unlock()
	c.f.bound = handlers
}

// handlersOf returns the handlers of a mux by name: those of a worker that never runs.
func (f *Fleet) handlersOf(mux *tasks.Mux) map[string]*engine.Handler {
	f.tb.Helper()
	if _, err := tasks.NewWorker(f.client, mux, tasks.WorkerConfig{}); err != nil {
		f.tb.Fatalf("make a worker: %v", err)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.bound
}

// Client returns a client of the fleet, for handlers that send work and for reading the state of workflows. Workflows
// that are sent with it run during the next [Do], [Fleet.Drain] or [Fleet.Advance]. Other clients that use its Redis
// connection belong to the fleet, too.
func (f *Fleet) Client() *tasks.Client { return f.client }

// Now returns the time by the fleet's clock.
func (f *Fleet) Now() time.Time {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.now
}

// Run runs s to its end on a fleet of its own, and returns its value or a *[tasks.Failure].
func Run[O any](tb testing.TB, mux *tasks.Mux, s tasks.Signature[O], opts ...Option) (O, error) {
	tb.Helper()
	return Do(New(tb, mux, opts...), s)
}

// Do sends s and runs the tasks of the fleet until all tasks of s have ended, also those that its value does not need.
// It returns the value or a *[tasks.Failure].
func Do[O any](f *Fleet, s tasks.Signature[O], opts ...tasks.SendOption) (O, error) {
	f.tb.Helper()
	ctx := context.Background()
	run, err := s.Send(ctx, f.client, opts...)
	if err != nil {
		var zero O
		return zero, err
	}
	f.until(time.Time{}, func() bool {
		p, err := run.Progress(ctx)
		return err != nil || p.Ended // an unknown workflow has ended and was not kept
	})
	return run.Wait(ctx)
}

// Drain runs tasks until none is left, however far the clock has to jump.
func (f *Fleet) Drain() {
	f.tb.Helper()
	f.until(time.Time{}, func() bool { return false })
}

// Advance runs the tasks that are due within d by the fleet's clock, and moves the clock by d.
func (f *Fleet) Advance(d time.Duration) {
	f.tb.Helper()
	end := f.Now().Add(d)
	f.until(end, func() bool { return false })
	f.jump(end)
}

// Limits of one call of until.
const (
	mostJumps = 100_000
	mostTime  = 10 * 365 * 24 * time.Hour
)

// until runs tasks until done returns true, no task is left, or all that are left are due after end.
func (f *Fleet) until(end time.Time, done func() bool) {
	f.tb.Helper()
	begun := f.Now()
	for range mostJumps {
		f.work()
		if done() {
			return
		}
		did, next, err := f.worker().Tend(context.Background())
		if err != nil {
			f.tb.Fatalf("look after workflows: %v", err)
		}
		switch {
		case did > 0:
		case next.IsZero():
			return
		case !end.IsZero() && next.After(end):
			return
		case next.Sub(begun) > mostTime:
			f.tb.Fatalf("after %s of its clock there is still something to run", mostTime)
		default:
			f.jump(next)
		}
	}
	f.tb.Fatalf("after %d jumps of its clock there is still something to run: does a task return tasks.Again for ever?", mostJumps)
}

// jump moves the clock forward to t. If t is in the past it does nothing.
func (f *Fleet) jump(t time.Time) {
	f.mu.Lock()
	if t.After(f.now) {
		f.now = t
	}
	t = f.now
	f.mu.Unlock()
	f.redis.SetTime(t)
}

// worker returns any worker.
func (f *Fleet) worker() *engine.Worker {
	for _, w := range f.workers {
		return w
	}
	return f.workerOf("default")
}

// jumping is the engine's clock: the fleet moves it, and timers do not wait for it.
type jumping struct{ *Fleet }

func (jumping) AfterFunc(time.Duration, func()) func() bool { return func() bool { return true } }
func (jumping) After(time.Duration) <-chan time.Time        { return time.After(10 * time.Microsecond) }

// wake stores a wake-task, which is not sent to asynq.
func (f *Fleet) wake(_ context.Context, k engine.Wake) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.wakes = append(f.wakes, k)
	return nil
}

// work runs the tasks that are ready, one after the other.
func (f *Fleet) work() {
	f.tb.Helper()
	for {
		f.mu.Lock()
		wakes := f.wakes
		f.wakes = nil
		f.mu.Unlock()
		if len(wakes) == 0 {
			return
		}
		for _, k := range wakes {
			f.workerOf(k.Queue).Serve(context.Background(), k)
		}
	}
}

// workerOf returns the worker of a queue.
func (f *Fleet) workerOf(queue string) *engine.Worker {
	if w := f.workers[queue]; w != nil {
		return w
	}
	w := engine.NewWorker(f.eng, f.handlers, engine.WorkerConfig{
		Queues: map[string]int{queue: 1}, Concurrency: 1, MaxConcurrency: 1, MaxResult: 16 << 20, Manual: true, HandlerWait: 50 * time.Second,
		Name: engine.WorkerName(), Logger: slog.New(slog.DiscardHandler),
	})
	f.workers[queue] = w
	return w
}
