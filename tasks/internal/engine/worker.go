package engine

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"muster/tasks/internal/graph"
	"muster/tasks/internal/store"
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
	Name           string
	Logger         *slog.Logger
	Ready          func()
	Observe        func(Attempt)
	Plain          asynq.Handler
	Manual         bool // whoever runs it calls Tend, and nothing is done at its own time
}

// How workers watch each other and the agenda.
const (
	beatEvery  = 3 * time.Second
	deadAfter  = 9 * time.Second // of silence
	sweepEvery = 4 * time.Second
	pollEvery  = 4 * time.Second // of queues, should a wake-up have been lost
	claimFor   = 5 * time.Second
	sweepMost  = 200 // lines of a shard
)

// Worker runs tasks and looks after workflows.
type Worker struct {
	e        *Engine
	cfg      WorkerConfig
	handlers map[string]*Handler
	log      *slog.Logger
	seam     *seam
	pool     *pool
	started  time.Time
	killed   chan struct{} // closed when nothing may be waited for any more
	killOnce sync.Once
	timer    chan int64 // unix ms of timers that were set

	mu    sync.Mutex // guards the fields below
	runs  map[*Run]bool
	mine  map[string]bool   // "<workflow>/<node>/<epoch>" that a slot of this worker is at
	tried map[string]int    // likewise, that slots try for while they end what comes before
	ahead map[string]*begun // deliveries that were begun before asynq hands them to a slot
	ran   bool
	dirty map[string]*flow // whose progress keys are to be written
	peers peers

	served map[string]bool // queues, since they were last registered

	stats stats
}

type stats struct{ begun, succeeded, failed, retried, recovered atomic.Int64 }

func (s *stats) read() WorkerStats {
	return WorkerStats{Begun: s.begun.Load(), Succeeded: s.succeeded.Load(), Failed: s.failed.Load(),
		Retried: s.retried.Load(), Recovered: s.recovered.Load()}
}

// NewWorker returns a worker.
func NewWorker(e *Engine, handlers map[string]*Handler, cfg WorkerConfig) *Worker {
	w := &Worker{e: e, cfg: cfg, handlers: handlers, log: cfg.Logger, killed: make(chan struct{}),
		timer: make(chan int64, 64), runs: map[*Run]bool{}, mine: map[string]bool{}, ahead: map[string]*begun{}, tried: map[string]int{}, dirty: map[string]*flow{}, served: map[string]bool{},
		seam: newSeam(e.store, len(cfg.Queues), cfg.QueueLimits, pollEvery), pool: &pool{}}
	w.seam.taken, w.seam.back, w.seam.bury, w.seam.run = w.beginAhead, w.giveBack, w.bury, w.own
	w.seam.failed = func(id string, err error) { w.log.Warn("worker and asynq", "id", id, "error", err) }
	w.seam.limit.Store(int64(cfg.Concurrency))
	return w
}

// Name returns the name of the worker.
func (w *Worker) Name() string { return w.cfg.Name }

// SetConcurrency changes how many tasks run at once.
func (w *Worker) SetConcurrency(n int) {
	w.seam.limit.Store(int64(min(max(n, 1), w.cfg.MaxConcurrency)))
	ring(w.seam.room)
}

// Kill lets Run return without waiting for handlers.
func (w *Worker) Kill() { w.killOnce.Do(func() { close(w.killed) }) }

// claim reserves a delivery for one slot of this worker. It comes before Redis is asked to begin the
// node, and unclaim after Redis has taken what became of it: what Redis says runs here and is not
// claimed does not run.
func (w *Worker) claim(workflow, node string, epoch int) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	key := claimKey(workflow, node, epoch)
	if w.mine[key] {
		return false
	}
	w.mine[key] = true
	return true
}

func (w *Worker) unclaim(workflow, node string, epoch int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.mine, claimKey(workflow, node, epoch))
}

func claimKey(workflow, node string, epoch int) string {
	return workflow + "/" + node + "/" + strconv.Itoa(epoch)
}

func (w *Worker) track(r *Run) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.runs[r] = true
	w.served[r.Info.Queue] = true
}

// register has operators see the queues that this worker has served since it last did. asynq's client
// does so once, and an operator can delete a queue, or Redis lose it.
func (w *Worker) register(ctx context.Context) error {
	w.mu.Lock()
	served := slices.Collect(maps.Keys(w.served))
	clear(w.served)
	w.mu.Unlock()
	return w.e.store.Register(ctx, served)
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
	w.started = time.Now()
	defer w.pool.close()

	if err := w.work(ctx); err != nil && ctx.Err() == nil {
		return fmt.Errorf("start worker: %w", err)
	}
	bye, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	if err := w.e.ExpireWorkers(bye, []string{w.cfg.Name}); err != nil {
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
	srv := asynq.NewServerFromRedisClient(w.seam, asynq.Config{
		Concurrency:              w.cfg.MaxConcurrency,
		Queues:                   w.cfg.Queues,
		StrictPriority:           w.cfg.Strict,
		TaskCheckInterval:        time.Microsecond, // the seam does the waiting
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
	err := srv.Start(asynq.HandlerFunc(func(ctx context.Context, t *asynq.Task) error {
		queue, _ := asynq.GetQueueName(ctx)
		id, ok := asynq.GetTaskID(ctx)
		if !ok || t.Headers()[header] != headerVersion {
			defer func(began time.Time) { w.seam.done(queue, time.Since(began)) }(time.Now())
			if w.cfg.Plain != nil && t.Headers()[header] == "" {
				return w.plain(ctx, t)
			}
			return w.foreign(ctx, t, id, queue)
		}
		done := make(chan error, 1)
		w.pool.run(func() {
			w.slot(carried{id: id, task: t.Type(), queue: queue}, func(err error) { done <- err })
		})
		return <-done
	}))
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
		_, _, err := w.beat(ctx, false)
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
	w.seam.stop()
	srv.Stop()
	w.seam.giveBack()
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
	ctx, cancel := context.WithTimeout(context.Background(), unwind)
	defer cancel()
	w.e.store.Scripts().Flush(ctx)
}

// idle waits until no task runs, for at most d.
func (w *Worker) idle(d time.Duration, stop <-chan struct{}) {
	deadline := time.NewTimer(d)
	defer deadline.Stop()
	for w.seam.active.Load() > 0 {
		select {
		case <-w.seam.room:
		case <-deadline.C:
			return
		case <-stop:
			return
		case <-time.After(50 * time.Millisecond):
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

// listen acts on what other processes tell.
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
				ring(w.seam.wake)
				return
			}
		}
	case "t":
		if at, err := strconv.ParseInt(rest, 10, 64); err == nil {
			select {
			case w.timer <- at:
			default:
			}
		}
	case "x":
		w.leaveOut(rest, nil)
		for _, r := range w.tracked() {
			if r.Info.Workflow == rest {
				r.cancel(errRevoked)
			}
		}
	case "n":
		id, nodes, _ := strings.Cut(rest, " ")
		list := strings.Split(nodes, ",")
		w.leaveOut(id, list)
		for _, r := range w.tracked() {
			if r.Info.Workflow == id && slices.Contains(list, r.Info.Node) {
				r.cancel(errRevoked)
			}
		}
	case "p":
		if err := w.e.store.Pong(context.Background(), rest, w.cfg.Name); err != nil {
			w.log.Warn("ping was not answered", "error", err)
		}
	case "c":
		name, count, _ := strings.Cut(rest, " ")
		if n, err := strconv.Atoi(count); err == nil && (name == "*" || name == w.cfg.Name) {
			w.SetConcurrency(n)
		}
	}
}

func (w *Worker) beat(ctx context.Context, judge bool) (live, silent []string, err error) {
	host, _ := os.Hostname()
	names := slices.Sorted(maps.Keys(w.handlers))
	return w.e.store.Beat(ctx, w.cfg.Name, WorkerInfo{Name: w.cfg.Name, Host: host, PID: w.cfg.PID, Queues: w.cfg.Queues,
		Concurrency: int(w.seam.limit.Load()), Active: int(w.seam.active.Load()), Started: w.started, Tasks: names,
		MaxConcurrency: w.cfg.MaxConcurrency, Stats: w.stats.read(), Version: graph.Version}, deadAfter, judge)
}

// watch says that this worker lives, and takes over from those that do not. When it could not say so
// itself for a while, the others may not have either: they get time to be heard before they are judged.
func (w *Worker) watch(ctx context.Context) {
	tick := time.NewTicker(beatEvery)
	defer tick.Stop()
	heard := time.Now() // our last beat
	judge := heard.Add(deadAfter)
	taken := false // a dead worker may have tasks in its hands that it did not begin
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		now := time.Now()
		if now.Sub(heard) > 2*beatEvery {
			judge = now.Add(deadAfter)
		}
		fair := !now.Before(judge)
		live, silent, err := w.beat(ctx, fair)
		if err == nil {
			heard = now
			taken = taken || len(silent) > 0
			err = errors.Join(w.reap(ctx, live, fair), w.register(ctx), w.seam.prolong(ctx))
		}
		if err == nil && taken {
			err = w.e.takeBack(ctx)
			taken = err != nil
		}
		if err != nil && ctx.Err() == nil {
			w.log.Warn("watch over workers failed", "error", err)
		}
	}
}

// reap makes runnable again what this worker does not run although Redis says so and, if it is fair to
// judge them, what silent workers were running.
func (w *Worker) reap(ctx context.Context, live []string, fair bool) error {
	holders, err := w.e.store.Running(ctx)
	if err != nil {
		return err
	}
	var errs []error
	for _, h := range holders {
		epoch := ""
		switch {
		case h.Worker == w.cfg.Name:
			stray, at, err := w.stray(ctx, h)
			if err != nil {
				errs = append(errs, err)
			}
			if !stray {
				continue
			}
			epoch = at
			w.log.Warn("node that Redis lost the end of runs again", "workflow", h.Flow.ID, "node", h.Node)
		case !fair || slices.Contains(live, h.Worker):
			continue
		default:
			w.log.Warn("node of a silent worker runs again", "worker", h.Worker, "workflow", h.Flow.ID, "node", h.Node)
		}
		w.stats.recovered.Add(1)
		if err := w.e.lost(ctx, h, epoch); err != nil {
			errs = append(errs, fmt.Errorf("workflow %s node %s: %w", h.Flow.ID, h.Node, err))
		}
	}
	return errors.Join(errs...)
}

// stray reports whether a node that Redis says this worker runs is not run by it, and the epoch it is
// under. A Redis that lost its last writes, in a failover or with the machine, can remember the begin of
// a run and not its end.
func (w *Worker) stray(ctx context.Context, h store.Holder) (bool, string, error) {
	epoch := ""
	for range 2 { // between the look at Redis and the one here it can have ended
		raws, err := w.e.store.Fields(ctx, h.Flow, []string{h.Node})
		if err != nil {
			return false, "", err
		}
		rec := store.ParseRecord(raws[0], 0)
		if rec.State != 'R' || rec.Owner != w.cfg.Name {
			return false, "", nil
		}
		key := claimKey(h.Flow.ID, h.Node, rec.Epoch)
		w.mu.Lock()
		busy := w.mine[key] || w.tried[key] > 0
		w.mu.Unlock()
		if busy {
			return false, "", nil
		}
		epoch = strconv.Itoa(rec.Epoch)
	}
	return true, epoch, nil
}

// projectEvery is how often the progress keys of a workflow are written.
const projectEvery = 100 * time.Millisecond

// touch has the progress keys of a workflow written soon.
func (w *Worker) touch(fl *flow) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.dirty[fl.ID] = fl
}

func (w *Worker) projections(ctx context.Context) {
	tick := time.NewTicker(projectEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		w.projectAll(ctx)
	}
}

// projectAll writes the progress keys that are to be written.
func (w *Worker) projectAll(ctx context.Context) {
	w.mu.Lock()
	dirty := w.dirty
	w.dirty = map[string]*flow{}
	w.mu.Unlock()
	for id, fl := range dirty {
		if err := w.e.project(ctx, fl); err != nil && ctx.Err() == nil && !errors.Is(err, ErrUnknown) {
			w.log.Warn("progress keys were not written", "workflow", id, "error", err)
		}
	}
}
