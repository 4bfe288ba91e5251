package engine

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"muster/tasks/internal/store"
	"muster/tasks/tasktype"
)

// WorkerConfig is the checked configuration of a worker.
type WorkerConfig struct {
	Queues         map[string]int
	Strict         bool
	Concurrency    int
	MaxConcurrency int
	MaxResult      int
	QueueLimits    map[string]int
	PID            int
	Release        string
	Grace          time.Duration
	HandlerWait    time.Duration
	Name           string
	Logger         *slog.Logger
	Ready          func()
	Observe        func(tasktype.Attempt)
	Plain          asynq.Handler
	OnDemand       bool          // it has as many slots as its owner sets, at first none, and takes no more nodes than these
	Manual         bool          // nothing is done at intervals; the caller calls Tend instead
	SweepEvery     time.Duration // how often the agenda is read without a timer; 0 for the default
}

// How often asynq's server looks into its queues, since the message that wakes it can be lost, and for its delayed tasks.
const (
	pollEvery    = 4 * time.Second
	delayedEvery = 5 * time.Second
)

// storeEvery is how long a worker keeps its counts and log lines before it stores them: if it is killed, they are lost.
const storeEvery = time.Second

// busPing is how often the subscription to the bus is checked; its messages can be lost.
const busPing = 15 * time.Second

// RingEntry is an entry of the ring of a queue.
type RingEntry = store.RingEntry

// Worker runs tasks and looks after workflows.
type Worker struct {
	*local
	e        *Engine
	handlers map[string]*Handler
	poller   *poller
	slots    *slots
	runs     *runs

	bus        *bus
	dispatcher *dispatcher
	agenda     *agenda
	watcher    *watcher
	projector  *progressWriter
	logs       *logs
	rings      *rings

	ran atomic.Bool
}

// NewWorker returns a worker. It does not change handlers.
func NewWorker(e *Engine, handlers map[string]*Handler, cfg WorkerConfig) *Worker {
	l := &local{env: e.env, life: newLife(), cfg: &cfg, log: cfg.Logger}
	wake := make(chan struct{}, 1)
	w := &Worker{local: l, e: e, handlers: handlers, runs: &runs{set: map[*Run]bool{}}, projector: &progressWriter{local: l, progress: e.progress, dirty: map[string]*flow{}, due: make(chan struct{}, 1)}, logs: newLogs(l)}
	w.slots = newSlots(cfg.Concurrency, cfg.MaxConcurrency, cfg.QueueLimits, func() { signal(wake) })
	w.poller = &poller{UniversalClient: e.store.Redis(), full: func(name string) bool { return w.slots.full(e.store.OwnQueue(name)) }, queues: len(cfg.Queues), every: pollEvery, wake: wake, closed: l.stop, empty: map[string]bool{}}
	limiter := &limiter{local: l, held: map[store.Place]bool{}}
	w.agenda = &agenda{l, e.graphs, e.advancer, e.progress, e.Completer, limiter, e.Schedules, make(chan time.Time, 64)}
	limiter.timer = w.agenda.setTimer
	d := newDispatcher(l, w.slots)
	w.dispatcher, w.rings = d, &rings{local: l, slots: w.slots, dispatcher: d, paused: map[string]bool{}, resumed: make(chan struct{})}
	w.bus = &bus{l, w.slots, w.runs, w.agenda, w.rings, wake}
	d.graphs, d.advancer, d.agenda, d.limiter, d.rings = e.graphs, e.advancer, w.agenda, limiter, w.rings
	d.runner = &runner{l, handlers, e.graphs, e.advancer, e.progress, w.projector, &peers{local: l, fleet: e.Fleet, asking: newLock()}, w.runs, limiter, w.logs, d.leases}
	w.watcher = &watcher{l, w.slots, limiter, w.agenda, d.leases, w.runs, &history{local: l, inspector: e.Inspector}, w.Tasks(), samples(w.handlers), e.clock.Now(), false, 0}
	if h, ok := e.store.Redis().(Hook); ok {
		h.WorkerMade(handlers)
	}
	return w
}

// Run works until ctx is done. It returns nil if ctx ends during the start.
func (w *Worker) Run(ctx context.Context) error {
	if w.ran.Swap(true) {
		return errors.New("worker has run before: make a new one")
	}
	leave, err := w.e.enter(w)
	if err != nil {
		return fmt.Errorf("start worker: %w", err)
	}
	defer leave()
	w.watcher.started = w.clock.Now()

	if err := w.work(ctx); err != nil && ctx.Err() == nil {
		brief, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		_ = w.watcher.signOff(brief) // Redis may be the cause
		return fmt.Errorf("start worker: %w", err)
	}
	bye, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	if err := w.watcher.signOff(bye); err != nil {
		w.log.WarnContext(ctx, "worker could not sign off; others will find it silent", "worker", w.cfg.Name, "error", err)
	}
	w.log.InfoContext(ctx, "worker has stopped", "worker", w.cfg.Name)
	return nil
}

// work starts the components of the worker and works until ctx is done. It returns an error if the start fails.
func (w *Worker) work(ctx context.Context) error {
	if err := w.watcher.signOn(ctx); err != nil {
		return err
	}
	if err := w.watcher.returnStrays(ctx); err != nil {
		return err
	}
	loops, err := w.background(ctx)
	if err != nil {
		return err
	}
	defer loops()
	stopServer, shutServer := func() {}, func() {}
	if w.cfg.Plain != nil {
		srv := w.server()
		if err := srv.Start(asynq.HandlerFunc(w.handle)); err != nil {
			return err
		}
		stopServer, shutServer = srv.Stop, srv.Shutdown
	}
	drain := func() {
		w.drain(stopServer)
		shutServer()
	}
	if err := w.rings.run(ctx); err != nil {
		drain()
		return err
	}
	if w.cfg.Ready != nil {
		w.cfg.Ready()
	}
	w.log.InfoContext(ctx, "worker takes tasks", "worker", w.cfg.Name, "queues", w.cfg.Queues, "concurrency", w.cfg.Concurrency)

	select {
	case <-ctx.Done():
	case <-w.killed:
	}
	drain()
	return nil
}

// background starts the background tasks of a worker. They continue after ctx ends, until end is called, which waits
// for them.
func (w *Worker) background(ctx context.Context) (end func(), err error) {
	shards, err := w.store.Shards(ctx)
	if err != nil {
		return nil, err
	}
	running, stop := context.WithCancel(context.WithoutCancel(ctx))
	messages := w.store.Redis().Subscribe(running, w.store.Bus())
	if _, err := messages.Receive(ctx); err != nil {
		stop()
		_ = messages.Close()
		return nil, fmt.Errorf("subscribe: %w", err)
	}
	var loops sync.WaitGroup
	loops.Go(func() { w.bus.run(running, messages.Channel(redis.WithChannelHealthCheckInterval(busPing))) })
	if !w.cfg.Manual {
		loops.Go(func() { w.watcher.run(running) })
		loops.Go(func() { w.agenda.run(running, shards) })
		loops.Go(func() { after(running, w.projector.due, projectEvery, w.projector.once) })
		loops.Go(func() { after(running, w.dispatcher.tally.due, storeEvery, w.dispatcher.tally.once) })
		loops.Go(func() { after(running, w.logs.due, storeEvery, w.logs.once) })
	}
	return func() {
		stop()
		_ = messages.Close()
		loops.Wait()
		if !w.cfg.Manual {
			rest, cancel := context.WithTimeout(context.WithoutCancel(running), storeEvery)
			defer cancel()
			w.dispatcher.tally.once(rest)
			w.logs.once(rest)
		}
	}, nil
}

// server returns asynq's server, which runs tasks of asynq's own clients. Only a worker with a handler for them has one.
func (w *Worker) server() *asynq.Server {
	queues := map[string]int{}
	for q, weight := range w.cfg.Queues {
		queues[w.store.AsynqQueue(q)] = weight
	}
	return asynq.NewServerFromRedisClient(w.poller, asynq.Config{
		Concurrency:              w.cfg.MaxConcurrency,
		Queues:                   queues,
		StrictPriority:           w.cfg.Strict,
		TaskCheckInterval:        time.Microsecond, // the poller does the waiting
		DelayedTaskCheckInterval: delayedEvery,
		JanitorInterval:          time.Minute, // only tasks of asynq's own clients are kept
		ShutdownTimeout:          time.Second,
		RetryDelayFunc:           retryDelay,
		IsFailure:                isPlain,
		Logger:                   quiet{w.log},
		LogLevel:                 asynq.WarnLevel,
	})
}

// handle is the handler of asynq's server.
func (w *Worker) handle(ctx context.Context, t *asynq.Task) error {
	name, _ := asynq.GetQueueName(ctx)
	queue := w.store.OwnQueue(name)
	if !w.slots.acquire(queue) {
		return ErrShutdown // asynq keeps the task for another worker
	}
	defer w.slots.release(queue)
	return runPlain(ctx, w.cfg.Plain, t)
}

// longestUnwind is the longest time that handlers have to return once their contexts have ended.
const longestUnwind = 2 * time.Second

// drain stops taking tasks and waits for running ones, or returns them to their queues. stopServer stops asynq's server.
func (w *Worker) drain(stopServer func()) {
	w.life.halt()
	w.slots.close()
	w.dispatcher.halt()
	stopServer()
	unwind := min(w.cfg.Grace/4, longestUnwind)
	w.idle(w.cfg.Grace-unwind, w.killed)
	for _, r := range w.runs.end(ErrShutdown) {
		r.cancel(ErrShutdown)
	}
	w.idle(unwind, w.killed)
	for _, r := range w.runs.end(errKilled) {
		r.free(errKilled)
	}
	w.idle(longestUnwind, nil) // until the results are stored
	w.life.kill()
	w.rings.end()
}

// idle waits until no task runs, for at most d.
func (w *Worker) idle(d time.Duration, stop <-chan struct{}) {
	for deadline := time.After(d); ; {
		if active, _ := w.slots.use(); active == 0 {
			return
		}
		select {
		case <-deadline:
			return
		case <-stop:
			return
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// Kill lets Run return without waiting for handlers.
func (w *Worker) Kill() { w.life.kill() }

// Name returns the name of the worker.
func (w *Worker) Name() string { return w.cfg.Name }

// SetConcurrency changes how many tasks run at once.
func (w *Worker) SetConcurrency(n int) { w.slots.setLimit(max(n, 1)) }

// Stats returns the counts of the worker since its start.
func (w *Worker) Stats() tasktype.WorkerStats { return w.stats.read() }

// Slots returns how many slots are in use, and how many there are.
func (w *Worker) Slots() (busy, all int) {
	return w.slots.use()
}

// Tasks returns the names that the worker has handlers for, sorted.
func (w *Worker) Tasks() []string { return taskNames(w.handlers) }

// Serve takes and runs nodes, beginning with an entry that was taken for the worker.
func (w *Worker) Serve(ctx context.Context, e RingEntry) {
	if w.slots.tryAcquire(e.Queue) {
		w.dispatcher.serve(&e)
	} else {
		w.rings.putBack(ctx, &e)
	}
	w.dispatcher.wait()
}

// Hear acts on a message of the bus. A manual worker does not subscribe to it.
func (w *Worker) Hear(message string) { w.bus.hear(message) }

// Tend performs the periodic work of a worker once: it sends a heartbeat and handles the agenda, dead workers and
// ready nodes that no worker takes. It returns the number of due entries of the agenda and schedules, and the times of the next entry and
// the next tick of a schedule, or zero if there are none.
func (w *Worker) Tend(ctx context.Context) (did int, next, tick time.Time, err error) {
	w.projector.once(ctx)
	w.dispatcher.tally.once(ctx)
	w.logs.once(ctx)
	if err := w.watcher.once(ctx); err != nil {
		return 0, next, tick, err
	}
	shards, err := w.store.Shards(ctx)
	if err != nil {
		return 0, next, tick, err
	}
	var errs []error
	for shard := range shards {
		n, err := w.agenda.once(ctx, shard)
		did, errs = did+n, append(errs, err)
	}
	if err := errors.Join(errs...); err != nil {
		return did, next, tick, err
	}
	next, tick, err = w.agenda.store.Agenda.Next(ctx)
	return did, next, tick, err
}

// quiet passes asynq's log on.
type quiet struct{ log *slog.Logger }

func (q quiet) Debug(args ...any) { q.log.Debug("asynq: " + fmt.Sprint(args...)) }
func (q quiet) Info(args ...any)  { q.log.Debug("asynq: " + fmt.Sprint(args...)) }

func (q quiet) Warn(args ...any)  { q.log.Warn("asynq: " + fmt.Sprint(args...)) }
func (q quiet) Error(args ...any) { q.log.Error("asynq: " + fmt.Sprint(args...)) }

func (q quiet) Fatal(args ...any) { q.log.Error("asynq: " + fmt.Sprint(args...)) }
