package tasks

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/hibiken/asynq"

	"muster/tasks/internal/engine"
	"muster/tasks/tasktype"
)

// WorkerConfig is the configuration of a worker.
type WorkerConfig struct {
	// Queues are the queues to take from, with their weights. Defaults to {"default": 1}.
	Queues map[string]int
	// QueueLimits bounds how many tasks of a queue this worker runs at once. Defaults to Concurrency
	// for each.
	QueueLimits map[string]int
	// Strict takes tasks from a queue only when the queues with a greater weight are empty. Defaults to false.
	Strict bool
	// Concurrency is how many tasks run at once: the slots of the worker. Defaults to 8. It has more
	// short tasks at hand, up to 256 or about 1 ms of work, and returns those that it has not started after 20 ms.
	Concurrency int
	// MaxConcurrency is the most that [Client.SetConcurrency] can set. Defaults to the larger of
	// 256 and Concurrency.
	MaxConcurrency int
	// Grace is how long Run waits for handlers after its context has ended. In the last quarter of it, for 2 s at most, the
	// contexts of the handlers have ended. Defaults to 30 s.
	Grace time.Duration
	// HandlerWait is how long a task waits while no live worker of its queue has a handler for it. It runs once such a worker
	// starts, and otherwise fails with [tasktype.CodeUnregistered]. Defaults to 24 hours.
	HandlerWait time.Duration
	// MaxResult is the largest result of a task, in bytes of JSON. Defaults to 16 MiB.
	MaxResult int
	// Name identifies the worker. If a live worker has the same name, the worker returns an error and does not start. A worker
	// that was killed counts as live for six seconds; its successor of the same name waits until then.
	// Defaults to host-pid-number.
	Name string
	// Release is the version of the program, for operators: see [tasktype.Worker]. Defaults to none.
	Release string
	// Logger receives messages for operators. Defaults to none.
	Logger *slog.Logger
	// Ready, if set, is called once, when the worker begins to take tasks.
	Ready func()
	// Asynq, if set, handles the tasks of the queues that were sent with asynq's own client, as asynq's
	// server would: with its retries, time limits and results. Such a task starts some seconds after it was sent.
	// Defaults to none: such tasks wait for a worker that has a handler.
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
		c.HandlerWait = 24 * time.Hour
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
		if !validQueue(q) || w < 1 {
			errs = append(errs, fmt.Errorf("field Queues[%q]: weight %d; give a name that tasks.Queue accepts, and a weight of at least 1", q, w))
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
	if c.HandlerWait < 0 || c.Grace < 0 || c.MaxResult < 0 {
		errs = append(errs, fmt.Errorf("fields HandlerWait, Grace, MaxResult: %s, %s, %d must not be negative", c.HandlerWait, c.Grace, c.MaxResult))
	}
	if err := engine.ValidName(c.Name); err != nil {
		errs = append(errs, fmt.Errorf("field Name: %w", err))
	}
	return errors.Join(errs...)
}

// Worker takes tasks from queues and runs them. Its methods may be called by many goroutines at once.
type Worker struct {
	w     *engine.Worker
	stop  context.CancelFunc // ends the Run that StartWorker started; nil for other workers
	ended chan struct{}      // closed when that Run has returned
	err   error              // of that Run; read it only once ended is closed
}

// NewWorker returns a worker that runs the handlers of mux. It does nothing until [Worker.Run] is called.
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
	if err := checkRules(mux.handlers); err != nil {
		return nil, err
	}
	mux.sealed.Store(true)
	return &Worker{w: engine.NewWorker(c.eng, mux.handlers, engine.WorkerConfig{
		Queues: cfg.Queues, Strict: cfg.Strict, Concurrency: cfg.Concurrency, MaxConcurrency: cfg.MaxConcurrency,
		Grace: cfg.Grace, HandlerWait: cfg.HandlerWait, MaxResult: cfg.MaxResult, Name: cfg.Name, Logger: cfg.Logger, Ready: cfg.Ready, Observe: cfg.Observe, Plain: cfg.Asynq,
		QueueLimits: cfg.QueueLimits, PID: os.Getpid(), Release: cfg.Release,
	})}, nil
}

// StartWorker makes a worker, as [NewWorker] does, and calls its Run in another goroutine. It returns when the worker
// begins to take tasks, or the error that prevents that. The worker runs until ctx is done or [Worker.Stop] is called.
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
		if w.err == nil { // ctx ended before the worker was ready
			return nil, fmt.Errorf("start worker: %w", ctx.Err())
		}
		return nil, w.err
	}
}

// Stop stops a worker that [StartWorker] returned, as the end of the context of [Worker.Run] does, and returns the error
// of Run. It blocks until running tasks have finished, for Grace at most, and may be called again. For a worker of
// [NewWorker] it returns an error: end the context of its Run.
func (w *Worker) Stop() error {
	if w.stop == nil {
		return errors.New("stop worker: StartWorker did not start it; end the context of its Run")
	}
	w.stop()
	<-w.ended
	return w.err
}

// Stats returns the counts of the worker since its start.
func (w *Worker) Stats() tasktype.WorkerStats { return w.w.Stats() }

// Slots returns how many tasks are running, and how many can run at once.
func (w *Worker) Slots() (busy, all int) { return w.w.Slots() }

// Tasks returns the names of the tasks that the worker has handlers for, sorted.
func (w *Worker) Tasks() []string { return w.w.Tasks() }

// Name returns the name of the worker.
func (w *Worker) Name() string { return w.w.Name() }

// Run takes and runs tasks until ctx is done. Then it takes no more tasks, lets running ones finish, ends the contexts of
// the others with the cause [ErrShutdown] shortly before Grace has passed, returns the tasks that have not finished by then
// to the queue, and returns nil. Another worker can run these tasks at once, even if their handlers have not returned; the
// attempt is not counted, whatever the handler returns. Run can be called once.
func (w *Worker) Run(ctx context.Context) error { return w.w.Run(ctx) }

// Kill makes Run return without waiting for Grace: running tasks return to the queue at once.
func (w *Worker) Kill() { w.w.Kill() }

// SetConcurrency sets how many tasks run at once, to at most MaxConcurrency.
func (w *Worker) SetConcurrency(n int) { w.w.SetConcurrency(n) }
