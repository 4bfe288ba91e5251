package taskstest

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"muster/tasks"
	"muster/tasks/internal/engine"
	"muster/tasks/internal/store"
)

// A Fleet runs the tasks of a Mux during calls of [Do], [Fleet.Drain] and [Fleet.Advance], and while a method of its
// client, such as [tasks.Run.Wait], waits for a workflow. Call its methods from one goroutine; handlers and
// the code under test may use its client concurrently. It is closed at the end of the test.
type Fleet struct {
	tb     testing.TB
	client *tasks.Client
	eng    *engine.Engine
	redis  *miniredis.Miniredis

	handlers map[string]*engine.Handler
	driving  sync.Mutex // held by the goroutine that runs tasks
	turn     sync.Mutex // held by the running task, unless it is in a batch

	mu      sync.Mutex         // guards the fields below
	workers map[string]*worker // by queue
	deaths  map[string]int     // remaining deaths by task, or by task and step; see Dies
	now     time.Time
	calls   []Call
	steps   map[string][]string        // of the running tasks, by key
	bound   map[string]*engine.Handler // of the last worker that package tasks created
}

// worker is the worker of a queue. A task that kills it closes died and then waits for buried.
type worker struct {
	*engine.Worker
	died, buried chan struct{}
}

// Option is an option of a fleet, such as [Stub].
type Option func(*Fleet)

// New returns a fleet that runs the tasks of mux. Its clock starts at the current time and does not move while tasks
// run.
func New(tb testing.TB, mux *tasks.Mux, opts ...Option) *Fleet {
	tb.Helper()
	return NewFunc(tb, func(*tasks.Client) *tasks.Mux { return mux }, opts...)
}

// NewFunc is like [New] for handlers that use the client of the fleet: build receives the client and returns the mux.
func NewFunc(tb testing.TB, build func(*tasks.Client) *tasks.Mux, opts ...Option) *Fleet {
	tb.Helper()
	f := &Fleet{tb: tb, redis: miniredis.NewMiniRedis(), workers: map[string]*worker{}, deaths: map[string]int{}, steps: map[string][]string{}, now: time.Now().Truncate(time.Millisecond)}
	if err := f.redis.Start(); err != nil {
		tb.Fatalf("start miniredis: %v", err)
	}
	f.redis.SetTime(f.now)
	f.redis.ClockTTL(true)
	rdb := redis.NewClient(&redis.Options{Addr: f.redis.Addr(), ContextTimeoutEnabled: true})
	f.client = tasks.NewClient(conn{rdb, f})
	tb.Cleanup(func() {
		for _, w := range f.live() {
			w.Kill()
		}
		_ = f.client.Close()
		_ = rdb.Close()
		f.redis.Close()
	})
	f.handlers = maps.Clone(f.handlersOf(build(f.client)))
	for _, o := range opts {
		o(f)
	}
	for name, h := range f.handlers {
		f.handlers[name] = f.recorded(h)
	}
	return f
}

// conn is the connection of a fleet and an [engine.Hook]: engines and workers that use it belong to the fleet.
type conn struct {
	redis.UniversalClient
	f *Fleet
}

// EngineMade connects an engine to the clock and driver of the fleet.
func (c conn) EngineMade(e *engine.Engine) {
	e.SetClock(jumping{c.f})
	e.SetDriver(c.f.drive)
	if c.f.eng == nil {
		c.f.eng = e
	}
}

// Publish implements redis.Cmdable. Workers have received bus messages when it returns.
func (c conn) Publish(ctx context.Context, channel string, message any) *redis.IntCmd {
	cmd := c.UniversalClient.Publish(ctx, channel, message)
	if text, ok := message.(string); ok && channel == store.Keys(store.DefaultNamespace).BusChannel(0) {
		for _, w := range c.f.live() {
			w.Hear(text)
		}
	}
	return cmd
}

// WorkerMade stores the handlers of a worker in bound.
func (c conn) WorkerMade(handlers map[string]*engine.Handler) {
	c.f.mu.Lock()
	defer c.f.mu.Unlock()
	c.f.bound = handlers
}

// handlersOf returns the handlers of a mux by name. It creates a worker, which does not run.
func (f *Fleet) handlersOf(mux *tasks.Mux) map[string]*engine.Handler {
	f.tb.Helper()
	if _, err := tasks.NewWorker(f.client, mux, tasks.WorkerConfig{}); err != nil {
		f.tb.Fatalf("create worker: %v", err)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.bound
}

// Client returns a client of the fleet, for handlers and code under test that send work, and for reading the state of
// workflows. Workflows that it sends run during the next [Do], [Fleet.Drain] or [Fleet.Advance], or while a method of
// the client waits for one of them. Other clients with the same Redis connection belong to the fleet too.
func (f *Fleet) Client() *tasks.Client { return f.client }

// Now returns the time of the fleet's clock.
func (f *Fleet) Now() time.Time {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.now
}

// Run runs s on a new fleet and returns its value or a *[tasks.Failure].
func Run[O any](tb testing.TB, mux *tasks.Mux, s tasks.Signature[O], opts ...Option) (O, error) {
	tb.Helper()
	return Do(New(tb, mux, opts...), s)
}

// Do sends s and runs the tasks of the fleet until all tasks of s have completed, including those on which its value
// does not depend. It returns the value or a *[tasks.Failure].
func Do[O any](f *Fleet, s tasks.Signature[O], opts ...tasks.SendOption) (O, error) {
	f.tb.Helper()
	ctx := context.Background()
	run, err := s.Send(ctx, f.client, opts...)
	if err != nil {
		var zero O
		return zero, err
	}
	f.run(time.Time{}, func() bool {
		p, err := run.Progress(ctx)
		return err != nil || p.Ended // an unknown workflow has completed and was not retained
	})
	return run.Wait(ctx)
}

// Drain runs all tasks, including scheduled ones, however far in the future. While there are some, schedules tick, too.
func (f *Fleet) Drain() {
	f.tb.Helper()
	f.run(time.Time{}, func() bool { return false })
}

// Advance runs the tasks and sends the ticks of schedules that are due within d by the fleet's clock, and advances the clock by d.
func (f *Fleet) Advance(d time.Duration) {
	f.tb.Helper()
	end := f.Now().Add(d)
	f.run(end, func() bool { return false })
	f.jump(end)
}

// Limits of a call of until.
const (
	maxJumps = 100_000
	maxTime  = 10 * 365 * 24 * time.Hour
)

// run calls until for the methods of the fleet.
func (f *Fleet) run(end time.Time, done func() bool) {
	f.tb.Helper()
	f.driving.Lock()
	defer f.driving.Unlock()
	if err := f.until(end, done); err != nil {
		f.tb.Fatalf("%v", err)
	}
}

// drive is the driver of the engines. It runs tasks until look returns true or an error, or ctx is done. It does
// nothing while another goroutine runs tasks.
func (f *Fleet) drive(ctx context.Context, look func() (bool, error)) (over bool, err error) {
	if !f.driving.TryLock() {
		return false, nil
	}
	defer f.driving.Unlock()
	if failed := f.until(time.Time{}, func() bool {
		over, err = look()
		return over || err != nil || ctx.Err() != nil
	}); failed != nil {
		return false, failed
	}
	return over, err
}

// until runs tasks until done returns true, no tasks remain, or the remaining ones are due after end.
func (f *Fleet) until(end time.Time, done func() bool) error {
	begun := f.Now()
	for range maxJumps {
		if err := f.work(); err != nil {
			return err
		}
		if done() {
			return nil
		}
		did, next, tick, err := f.worker().Tend(context.Background())
		if err != nil {
			return fmt.Errorf("advance workflows: %w", err)
		}
		if !tick.IsZero() && (tick.Before(next) || next.IsZero() && !end.IsZero()) {
			next = tick
		}
		switch {
		case did > 0:
		case next.IsZero():
			return nil
		case !end.IsZero() && next.After(end):
			return nil
		case next.Sub(begun) > maxTime:
			return fmt.Errorf("tasks remain after %s of the fleet's clock", maxTime)
		default:
			f.jump(next)
		}
	}
	return fmt.Errorf("tasks remain after %d jumps of the fleet's clock; a task may return tasks.Again forever", maxJumps)
}

// jump advances the clock to t. It does nothing if t is in the past.
func (f *Fleet) jump(t time.Time) {
	f.mu.Lock()
	if t.After(f.now) {
		f.now = t
	}
	t = f.now
	f.mu.Unlock()
	f.redis.SetTime(t)
}

// live returns the workers.
func (f *Fleet) live() []*worker {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Collect(maps.Values(f.workers))
}

// worker returns any worker.
func (f *Fleet) worker() *worker {
	for _, w := range f.live() {
		return w
	}
	return f.workerOf("default")
}

// jumping is the clock of the engine. The fleet advances it, and timers do not wait for it.
type jumping struct{ *Fleet }

func (jumping) AfterFunc(time.Duration, func()) func() bool { return func() bool { return true } }
func (jumping) After(time.Duration) <-chan time.Time        { return time.After(10 * time.Microsecond) }

// work runs the ready tasks one at a time.
func (f *Fleet) work() error {
	for {
		queues, err := f.eng.Store().Queues.Names(context.Background())
		if err != nil {
			return err
		}
		served := false
		for _, q := range queues {
			entries, err := f.eng.Store().Queues.Take(context.Background(), f.workerOf(q).Name(), q)
			if err != nil {
				return err
			}
			for _, e := range entries {
				served = true
				if err := f.serve(e); err != nil {
					return err
				}
			}
		}
		if !served {
			return nil
		}
	}
}

// serve runs the tasks of an entry of a ring. The batch of a dead worker is immediately taken by the next worker.
func (f *Fleet) serve(e engine.RingEntry) error {
	w, ctx := f.workerOf(e.Queue), context.Background()
	served := make(chan struct{})
	go func() {
		defer close(served)
		w.Serve(ctx, e)
	}()
	select {
	case <-served:
		return nil
	case <-w.died:
	}
	w.Kill()
	err := f.client.ExpireLeases(ctx, w.Name())
	close(w.buried)
	<-served
	return err
}

// dies kills the worker of a task with remaining deaths. It reports whether it did.
func (f *Fleet) dies(task, name string) bool {
	f.mu.Lock()
	var of *worker
	for q, w := range f.workers {
		if w.Name() == name && f.deaths[task] > 0 {
			of = w
			f.deaths[task]--
			delete(f.workers, q)
		}
	}
	f.mu.Unlock()
	if of == nil {
		return false
	}
	close(of.died)
	<-of.buried
	return true
}

// workerOf returns the worker of a queue.
func (f *Fleet) workerOf(queue string) *worker {
	f.mu.Lock()
	w := f.workers[queue]
	f.mu.Unlock()
	if w != nil {
		return w
	}
	w = &worker{engine.NewWorker(f.eng, f.handlers, engine.WorkerConfig{
		Queues: map[string]int{queue: 1}, Concurrency: 1, MaxConcurrency: 1, MaxResult: 16 << 20, Manual: true, HandlerWait: 24 * time.Hour,
		Name: engine.WorkerName(), Logger: slog.New(slog.DiscardHandler),
	}), make(chan struct{}), make(chan struct{})}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.workers[queue] = w
	return w
}
