package engine

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"strings"
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
	Grace          time.Duration
	HandlerWait    time.Duration
	Name           string
	Logger         *slog.Logger
	Ready          func()
	Observe        func(tasktype.Attempt)
	Plain          asynq.Handler
	Manual         bool // nothing is done at intervals; the caller calls Tend instead
}

// pollEvery is how often a worker looks into its queues, since the message that wakes it can be lost.
const pollEvery = 4 * time.Second

// Worker runs tasks and looks after workflows.
type Worker struct {
	e        *Engine
	cfg      WorkerConfig
	handlers map[string]*Handler
	log      *slog.Logger
	slots    *slots
	poller   *poller
	batches  *batches
	means    map[string]*atomic.Int64 // about how many ns a node takes, by queue
	others   map[string][]string      // the queues that a slot of a queue gives way to, by queue
	started  time.Time
	stop     chan struct{} // closed when no more tasks may begin
	stopOnce sync.Once
	killed   chan struct{} // closed when Run must return without waiting
	killOnce sync.Once
	timer    chan time.Time // times at which entries of the agenda are due
	damaged  atomic.Bool    // a call to Redis failed, so that a key may be damaged

	mu    sync.Mutex // guards the fields below
	runs  map[*Run]bool
	ran   bool
	dirty map[string]*flow // workflows whose progress keys are to be written, by id
	peers peers

	stats stats
}

type stats struct{ begun, succeeded, failed, retried, recovered atomic.Int64 }

func (s *stats) read() tasktype.WorkerStats {
	return tasktype.WorkerStats{Begun: s.begun.Load(), Succeeded: s.succeeded.Load(), Failed: s.failed.Load(),
		Retried: s.retried.Load(), Recovered: s.recovered.Load()}
}

// NewWorker returns a worker. It does not change handlers.
func NewWorker(e *Engine, handlers map[string]*Handler, cfg WorkerConfig) *Worker {
	w := &Worker{e: e, cfg: cfg, handlers: handlers, log: cfg.Logger, killed: make(chan struct{}), stop: make(chan struct{}),
		timer: make(chan time.Time, 64), runs: map[*Run]bool{}, dirty: map[string]*flow{}, batches: newBatches(),
		means: newMeans(cfg.Queues), others: map[string][]string{}, started: e.clock.Now()}
	for q := range cfg.Queues {
		for o := range cfg.Queues {
			if o != q && (!cfg.Strict || cfg.Queues[o] > cfg.Queues[q]) {
				w.others[q] = append(w.others[q], o)
			}
		}
		slices.Sort(w.others[q])
	}
	wake := make(chan struct{}, 1)
	w.slots = newSlots(cfg.Concurrency, cfg.QueueLimits, func() { ring(wake) })
	w.poller = &poller{UniversalClient: e.store.Redis(), full: w.slots.full, queues: len(cfg.Queues), every: pollEvery, wake: wake, closed: w.stop}
	if h, ok := e.store.Redis().(Hook); ok {
		h.WorkerMade(handlers)
	}
	return w
}

// Name returns the name of the worker.
func (w *Worker) Name() string { return w.cfg.Name }

// SetConcurrency changes how many tasks run at once.
func (w *Worker) SetConcurrency(n int) { w.slots.setLimit(min(max(n, 1), w.cfg.MaxConcurrency)) }

// Kill lets Run return without waiting for handlers.
func (w *Worker) Kill() { w.killOnce.Do(func() { close(w.killed) }) }

// halt lets no more tasks begin.
func (w *Worker) halt() {
	w.stopOnce.Do(func() {
		close(w.stop)
		w.slots.close()
	})
}

func (w *Worker) stopping() bool {
	select {
	case <-w.stop:
		return true
	case <-w.killed:
		return true
	default:
		return false
	}
}

func (w *Worker) track(r *Run) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.runs[r] = true
}

func (w *Worker) untrack(r *Run) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.runs, r)
}

func (w *Worker) tracked() []*Run {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Collect(maps.Keys(w.runs))
}

// Run works until ctx is done. To be told to stop while it starts is no failure.
func (w *Worker) Run(ctx context.Context) error {
	w.mu.Lock()
	if w.ran {
		w.mu.Unlock()
		return errors.New("worker has run before: make a new one")
	}
	w.ran = true
	w.mu.Unlock()
	leave, err := w.e.enter(w)
	if err != nil {
		return fmt.Errorf("start worker: %w", err)
	}
	defer leave()
	w.started = w.e.clock.Now()

	if err := w.work(ctx); err != nil && ctx.Err() == nil {
		brief, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		_ = w.e.store.Workers.Bye(brief, w.cfg.Name) // it may have signed on; Redis may be what is wrong
		return fmt.Errorf("start worker: %w", err)
	}
	bye, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	if err := w.e.leave(bye, w.cfg.Name); err != nil {
		w.log.Warn("worker could not sign off; others will find it silent", "worker", w.cfg.Name, "error", err)
	}
	w.log.Info("worker has stopped", "worker", w.cfg.Name)
	return nil
}

// work starts what the worker is made of and works until ctx is done. An error is one of the start.
func (w *Worker) work(ctx context.Context) error {
	if err := w.signOn(ctx); err != nil {
		return err
	}
	if err := w.returnStrays(ctx); err != nil {
		return err
	}
	srv := asynq.NewServerFromRedisClient(w.poller, asynq.Config{
		Concurrency:              w.cfg.MaxConcurrency,
		Queues:                   w.cfg.Queues,
		StrictPriority:           w.cfg.Strict,
		TaskCheckInterval:        time.Microsecond, // the poller does the waiting
		DelayedTaskCheckInterval: 5 * time.Second,
		ShutdownTimeout:          time.Second,
		RetryDelayFunc:           retryDelay,
		IsFailure:                isPlain,
		Logger:                   quiet{w.log},
		LogLevel:                 asynq.WarnLevel,
	})
	background, stopBackground := context.WithCancel(context.WithoutCancel(ctx))
	defer stopBackground()
	var loops sync.WaitGroup
	bus := w.e.store.Redis().Subscribe(background, store.BusChannel)
	if _, err := bus.Receive(ctx); err != nil {
		_ = bus.Close()
		return fmt.Errorf("subscribe: %w", err)
	}
	loops.Go(func() { w.listen(background, bus.Channel()) })
	if !w.cfg.Manual {
		loops.Go(func() { w.watch(background) })
		loops.Go(func() { w.sweep(background) })
		loops.Go(func() { w.projections(background) })
	}
	end := func() {
		stopBackground()
		_ = bus.Close()
		loops.Wait()
	}
	err := srv.Start(asynq.HandlerFunc(w.handle))
	if err != nil {
		end()
		return err
	}
	if w.cfg.Ready != nil {
		w.cfg.Ready()
	}
	w.log.Info("worker takes tasks", "worker", w.cfg.Name, "queues", w.cfg.Queues, "concurrency", w.cfg.Concurrency)

	select {
	case <-ctx.Done():
	case <-w.killed:
	}
	w.drain(srv)
	end()
	return nil
}

// handle is the handler of asynq's server: for wake-tasks, and for tasks of asynq's own clients.
func (w *Worker) handle(ctx context.Context, t *asynq.Task) error {
	queue, _ := asynq.GetQueueName(ctx)
	if !w.slots.acquire(queue) {
		return errStopped
	}
	defer w.slots.release(queue)
	if t.Type() != wakeType {
		return w.foreign(ctx, t)
	}
	k, err := parseWake(queue, t.Payload())
	if err != nil {
		return fmt.Errorf("%w: %w", err, asynq.SkipRetry)
	}
	w.Serve(context.WithoutCancel(ctx), k)
	return nil
}

// signOn makes the worker one of the live ones, once Redis has room to store that. It refuses a Redis that
// may lose what workflows need.
func (w *Worker) signOn(ctx context.Context) error {
	policy, err := w.e.store.MemoryPolicy(ctx)
	switch {
	case err != nil:
		return err
	case policy.Evicts():
		return fmt.Errorf("%w; it is %s", store.ErrEvicts, policy.Name)
	case policy.WouldEvict():
		w.log.Warn("redis has no limit of memory now; set maxmemory-policy noeviction before it gets one, or workflows are lost", "policy", policy.Name)
	case policy.Name == "":
		w.log.Info("redis does not tell its maxmemory-policy; see that it is noeviction")
	}
	for waits := false; ; waits = true {
		_, err := w.e.store.Shards(ctx) // first: in a store that is refused it must not be listed
		if err == nil {
			_, _, err = w.beat(ctx)
		}
		if !store.Full(err) {
			return err
		}
		if !waits {
			w.log.Warn("worker starts when there is room", "worker", w.cfg.Name, "error", w.e.store.Explain(ctx, err))
		}
		t := time.NewTimer(fullPoll)
		select {
		case <-ctx.Done():
			t.Stop()
			return ctx.Err()
		case <-w.killed:
			t.Stop()
			return err
		case <-t.C:
		}
	}
}

// fullPoll is how often a worker looks whether a Redis that was full has room.
const fullPoll = 500 * time.Millisecond

// unwind is how long handlers have to return once their contexts have ended.
const unwind = 2 * time.Second

// drain stops taking tasks and lets those that run finish, or gives them back.
func (w *Worker) drain(srv *asynq.Server) {
	w.halt()
	srv.Stop()
	w.idle(w.cfg.Grace, w.killed)
	for _, r := range w.tracked() {
		r.cancel(ErrShutdown)
	}
	w.idle(unwind, w.killed)
	for _, r := range w.tracked() {
		r.free(errKilled)
	}
	w.idle(unwind, nil)
	w.Kill()
	srv.Shutdown()
}

// idle waits until no task runs, for at most d.
func (w *Worker) idle(d time.Duration, stop <-chan struct{}) {
	deadline := time.NewTimer(d)
	defer deadline.Stop()
	for {
		if active, _ := w.slots.use(); active == 0 {
			return
		}
		select {
		case <-deadline.C:
			return
		case <-stop:
			return
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// quiet passes asynq's log on.
type quiet struct{ log *slog.Logger }

func (q quiet) Debug(args ...any) { q.log.Debug("asynq: " + fmt.Sprint(args...)) }
func (q quiet) Info(args ...any)  { q.log.Debug("asynq: " + fmt.Sprint(args...)) }
func (q quiet) Warn(args ...any)  { q.log.Warn("asynq: " + fmt.Sprint(args...)) }
func (q quiet) Error(args ...any) { q.log.Error("asynq: " + fmt.Sprint(args...)) }
func (q quiet) Fatal(args ...any) { q.log.Error("asynq: " + fmt.Sprint(args...)) }

// listen acts on the messages of other processes.
func (w *Worker) listen(ctx context.Context, bus <-chan *redis.Message) {
	for {
		select {
		case <-ctx.Done():
			return
		case m, ok := <-bus:
			if !ok {
				return
			}
			w.hear(m.Payload)
		}
	}
}

func (w *Worker) hear(message string) {
	kind, rest, _ := strings.Cut(message, " ")
	switch kind {
	case "q":
		for q := range strings.SplitSeq(rest, ",") {
			if w.cfg.Queues[q] > 0 {
				ring(w.poller.wake)
				return
			}
		}
	case "t":
		if at, err := strconv.ParseInt(rest, 10, 64); err == nil {
			w.setTimer(time.UnixMilli(at))
		}
	case "x":
		for _, r := range w.tracked() {
			if r.Info.Workflow == rest {
				r.cancel(errRevoked)
			}
		}
	case "n":
		id, nodes, _ := strings.Cut(rest, " ")
		list := strings.Split(nodes, ",")
		for _, r := range w.tracked() {
			if r.Info.Workflow == id && slices.Contains(list, r.Info.Node) {
				r.cancel(errRevoked)
			}
		}
	case "p":
		if err := w.e.store.Workers.Pong(context.Background(), rest, w.cfg.Name); err != nil {
			w.log.Warn("ping was not answered", "error", err)
		}
	case "c":
		name, count, _ := strings.Cut(rest, " ")
		if n, err := strconv.Atoi(count); err == nil && (name == "*" || name == w.cfg.Name) {
			w.SetConcurrency(n)
		}
	}
}

// setTimer makes the worker look at the agenda at a time.
func (w *Worker) setTimer(at time.Time) {
	select {
	case w.timer <- at:
	default: // there are so many that it looks soon anyway
	}
}
