package tasks

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"time"

	"github.com/hibiken/asynq"

	"muster/tasks/internal/engine"
	"muster/tasks/tasktype"
)

// WorkerConfig says what a worker takes and how.
type WorkerConfig struct {
	// Queues are the queues to take from, with their weights. Defaults to {"default": 1}.
	Queues map[string]int
	// QueueLimits bounds how many tasks of a queue this worker runs at once. Defaults to Concurrency
	// for each.
	QueueLimits map[string]int
	// Strict takes from a queue only when those with a greater weight are empty. Defaults to false.
	Strict bool
	// Concurrency is how many tasks run at once. Defaults to 8. A slot takes short tasks in batches, of up to 256 or
	// about 3 ms of work; what it has not begun after 20 ms goes back to the others.
	Concurrency int
	// MaxConcurrency bounds what [Client.SetConcurrency] can raise it to. Defaults to the larger of
	// 256 and Concurrency.
	MaxConcurrency int
	// Grace is how long running tasks may finish after the context of Run has ended. Defaults to 30 s.
	Grace time.Duration
	// HandlerWait is how long a task that no live worker has a handler for is put back until it fails with
	// [tasktype.CodeUnregistered]: a worker of a new release may start in that time. Defaults to 50 s.
	HandlerWait time.Duration
	// MaxResult bounds a result, in bytes. Defaults to 16 MiB.
	MaxResult int
	// Name identifies the worker; two live workers must not share one. Defaults to host-pid-number.
	Name string
	// Logger gets what an operator should know. Defaults to none.
	Logger *slog.Logger
	// Ready, if set, is called once the worker takes work.
	Ready func()
	// Asynq, if set, handles the tasks on the queues that were sent with asynq's own client, as asynq's
	// server would: with its retries, time limits and results. Such a task starts within some seconds
	// of being sent. Defaults to none: tasks of others are archived.
	Asynq asynq.Handler
	// Observe, if set, is called after every attempt with its outcome, by many goroutines at once.
	// It must not block.
	Observe func(tasktype.Attempt)
}

func (c WorkerConfig) withDefaults() WorkerConfig {
	if len(c.Queues) == 0 {
		c.Queues = map[string]int{"default": 1}
	}
	if c.Concurrency == 0 {
		c.Concurrency = 8
	}
	if c.MaxConcurrency == 0 {
		c.MaxConcurrency = max(256, c.Concurrency)
	}
	if c.Grace == 0 {
		c.Grace = 30 * time.Second
	}
	if c.HandlerWait == 0 {
		c.HandlerWait = 50 * time.Second
	}
	if c.MaxResult == 0 {
		c.MaxResult = 16 << 20
	}
	if c.Name == "" {
		c.Name = engine.WorkerName()
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c
}

func (c WorkerConfig) validate() error {
	var errs []error
	for q, w := range c.Queues {
		if q == "" || w < 1 {
			errs = append(errs, fmt.Errorf("field Queues[%q]: weight %d; name the queue and weigh it at least 1", q, w))
		}
	}
	for q, n := range c.QueueLimits {
		if c.Queues[q] == 0 || n < 1 {
			errs = append(errs, fmt.Errorf("field QueueLimits[%q]: %d; limit one of Queues to at least 1", q, n))
		}
	}
	if c.Concurrency < 1 || c.Concurrency > c.MaxConcurrency {
		errs = append(errs, fmt.Errorf("field Concurrency: %d must be 1 to MaxConcurrency %d", c.Concurrency, c.MaxConcurrency))
	}
	if c.HandlerWait < 0 {
		errs = append(errs, fmt.Errorf("field HandlerWait: %s is negative", c.HandlerWait))
	}
	if err := engine.ValidName(c.Name); err != nil {
		errs = append(errs, fmt.Errorf("field Name: %w", err))
	}
	return errors.Join(errs...)
}

// Worker runs tasks.
type Worker struct {
	w     *engine.Worker
	stop  context.CancelFunc // ends what StartWorker began; nil for other workers
	ended chan struct{}      // closed when that has ended
	err   error              // of Run; to be read once ended is closed
}

// NewWorker returns a worker that runs the handlers of mux.
func NewWorker(c *Client, mux *Mux, cfg WorkerConfig) (*Worker, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, fmt.Errorf("worker config: %w", err)
	}
	for name, h := range mux.handlers {
		if h.Opts.Err != nil {
			return nil, fmt.Errorf("task %s: %w", name, h.Opts.Err)
		}
	}
	return &Worker{w: engine.NewWorker(c.eng, maps.Clone(mux.handlers), engine.WorkerConfig{
		Queues: cfg.Queues, Strict: cfg.Strict, Concurrency: cfg.Concurrency, MaxConcurrency: cfg.MaxConcurrency,
		Grace: cfg.Grace, HandlerWait: cfg.HandlerWait, MaxResult: cfg.MaxResult, Name: cfg.Name, Logger: cfg.Logger, Ready: cfg.Ready, Observe: cfg.Observe, Plain: cfg.Asynq,
		QueueLimits: cfg.QueueLimits, PID: os.Getpid(),
	})}, nil
}

// StartWorker is [NewWorker] with Run in the background. It returns once the worker takes work, or with the error
// that keeps it from that. The worker runs until ctx is done or until Stop.
func StartWorker(ctx context.Context, c *Client, mux *Mux, cfg WorkerConfig) (*Worker, error) {
	up, ready := make(chan struct{}), cfg.Ready
	cfg.Ready = func() {
		if ready != nil {
			ready()
		}
		close(up)
	}
	w, err := NewWorker(c, mux, cfg)
	if err != nil {
		return nil, err
	}
	ctx, w.stop = context.WithCancel(ctx)
	w.ended = make(chan struct{})
	go func() {
		defer close(w.ended)
		w.err = w.Run(ctx)
	}()
	select {
	case <-up:
		return w, nil
	case <-w.ended:
		w.stop()
		if w.err == nil { // told to stop before it was up
			return nil, fmt.Errorf("start worker: %w", ctx.Err())
		}
		return nil, w.err
	}
}

// Stop ends a worker that StartWorker returned, as the end of the context of Run does: running tasks finish, for
// Grace at most. It blocks until then and may be called again. A worker that was made with [NewWorker] ends with the
// context of its Run; here it is an error.
func (w *Worker) Stop() error {
	if w.stop == nil {
		return errors.New("stop worker: StartWorker did not start it; end the context of its Run")
	}
	w.stop()
	<-w.ended
	return w.err
}

// Stats returns what the worker has done since it started.
func (w *Worker) Stats() tasktype.WorkerStats { return w.w.Stats() }

// Slots returns how many tasks run, and how many may.
func (w *Worker) Slots() (busy, all int) { return w.w.Slots() }

// Tasks returns the names that the worker has handlers for, sorted.
func (w *Worker) Tasks() []string { return w.w.Tasks() }

// Name returns the name of the worker.
func (w *Worker) Name() string { return w.w.Name() }

// Run takes and runs tasks until ctx is done. Then it takes no more, lets running tasks finish for
// Grace, ends their contexts with [ErrShutdown], gives back what still runs, and returns nil.
// Tasks given back run elsewhere at once, and no attempt is counted. Run can be called once.
func (w *Worker) Run(ctx context.Context) error { return w.w.Run(ctx) }

// Kill makes Run stop without Grace: what runs is given back at once.
func (w *Worker) Kill() { w.w.Kill() }

// SetConcurrency changes how many tasks run at once, within MaxConcurrency.
func (w *Worker) SetConcurrency(n int) { w.w.SetConcurrency(n) }
