package orchestrator

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"muster/orchestrator/monitor"
	"muster/orchestrator/refreshwait"
	"muster/tasks"
	"muster/tasks/tasktype"
)

// awaited describes a job to wait for, in addition to its handle; see refreshwait.Job.
type awaited[O any] struct {
	name, prefix string                                 // prefix is the prefix of the progress keys
	stored       func(context.Context) (O, bool, error) // reads the result from Redis
	file         func() (O, bool, error)                // reads the result from a file
	enough       func(context.Context) (bool, error)
	marker       func(context.Context) (string, error)
	progress     func(context.Context, tasktype.Progress) monitor.Progress
}

// showEvery is the interval at which the progress of an awaited job is displayed.
const showEvery = 250 * time.Millisecond

// waits holds the parts of an orchestrator that waiting for a job requires.
type waits struct {
	system *System
	logger *slog.Logger
	alive  func(context.Context) error // returns an error when no workers run
}

func newWaits(system *System, logger *slog.Logger, alive func(context.Context) error) *waits {
	return &waits{system: system, logger: logger, alive: alive}
}

// waiter returns a Waiter with the current settings.
func (w *waits) waiter() refreshwait.Waiter {
	cfg := w.system.cfg()
	return refreshwait.Waiter{
		Poll: cfg.Wait.Poll, Warn: cfg.Wait.Warn, Limit: cfg.Wait.Timeout, Logger: w.logger,
		Timeout: refreshwait.Timeout{
			Workers: cfg.Workers.Concurrency * max(1, cfg.Workers.Processes), PerChunk: cfg.Wait.PerChunk,
			Buffer: cfg.Wait.Buffer, Floor: cfg.Wait.Floor, Unknown: cfg.Wait.Unknown,
		},
	}
}

// await displays the progress of a job until it finishes, and returns its result.
func await[O any](ctx context.Context, w *waits, track *monitor.Track, run *tasks.Run[O], a awaited[O]) (O, error) {
	showing, stop := context.WithCancel(ctx)
	var shown sync.WaitGroup
	shown.Go(func() {
		look := time.NewTicker(showEvery)
		defer look.Stop()
		for {
			select {
			case <-showing.Done():
				return
			case <-look.C:
				if p, err := run.Progress(showing); err == nil { // the wait reports errors
					track.Update(a.progress(showing, p))
				}
			}
		}
	})
	defer func() { stop(); shown.Wait() }()

	out, stage, err := refreshwait.Wait(ctx, w.waiter(), refreshwait.Job[O]{
		Name: a.name,
		Event: func(ctx context.Context) (O, error) {
			out, err := run.Wait(ctx)
			return out, withoutTask(err)
		},
		Exists: func(ctx context.Context) (bool, error) {
			_, err := run.Status(ctx)
			if errors.Is(err, tasks.ErrNotFound) {
				return false, nil
			}
			return err == nil, err
		},
		Keys: func(ctx context.Context) (refreshwait.Keys, error) {
			return refreshwait.ReadKeys(ctx, w.system.Client.Redis(), a.prefix, run.ID())
		},
		Stored: func(ctx context.Context) (O, bool, error) {
			out, ok, err := a.stored(ctx)
			return out, ok, withoutTask(err)
		},
		File:   a.file,
		Marker: a.marker,
		Enough: a.enough,
		Alive:  w.alive,
	})
	w.logger.DebugContext(ctx, "job wait finished", "job", run.ID(), "stage", stage, "err", err)
	return out, err
}

// jobError is the failure of a job without the name of the task, which users do not know.
type jobError struct{ failure *tasks.Failure }

func (e *jobError) Error() string { return e.failure.Message }
func (e *jobError) Unwrap() error { return e.failure }

// withoutTask removes the name of the task from the error of a job.
func withoutTask(err error) error {
	if f, ok := errors.AsType[*tasks.Failure](err); ok {
		return &jobError{f}
	}
	return err
}
