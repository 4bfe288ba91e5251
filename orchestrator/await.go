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

// awaited describes a job to await besides its handle; see refreshwait.Job.
type awaited[O any] struct {
	name, prefix string                                 // prefix is that of its progress keys
	stored       func(context.Context) (O, bool, error) // the result that the job left in Redis
	file         func() (O, bool, error)                // and in a file
	enough       func(context.Context) (bool, error)
	moves        func(context.Context) (string, error)
	progress     func(context.Context, tasktype.Progress) monitor.Progress
}

// showEvery is how often the progress of an awaited job is shown.
const showEvery = 250 * time.Millisecond

// waits has what waiting for jobs needs of an orchestrator.
type waits struct {
	system *System
	logger *slog.Logger
	alive  func(context.Context) error // returns an error when no workers run
}

func newWaits(system *System, logger *slog.Logger, alive func(context.Context) error) *waits {
	return &waits{system: system, logger: logger, alive: alive}
}

// waiter waits as the settings in force say.
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

// await shows the progress of a job, waits for its end and returns its result.
func await[O any](ctx context.Context, w *waits, track *monitor.Track, run *tasks.AsyncResult[O], a awaited[O]) (O, error) {
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
		Name:  a.name,
		Event: run.Wait,
		Known: func(ctx context.Context) (bool, error) {
			_, err := run.Status(ctx)
			if errors.Is(err, tasks.ErrUnknown) {
				return false, nil
			}
			return err == nil, err
		},
		Keys: func(ctx context.Context) (refreshwait.Keys, error) {
			return refreshwait.ReadKeys(ctx, w.system.Client.Redis(), a.prefix, run.ID())
		},
		Stored: a.stored,
		File:   a.file,
		Moves:  a.moves,
		Enough: a.enough,
		Alive:  w.alive,
	})
	w.logger.DebugContext(ctx, "the wait is over", "job", run.ID(), "stage", stage, "err", err)
	return out, err
}
