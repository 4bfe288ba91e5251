package orchestrator

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"muster/orchestrator/monitor"
	"muster/orchestrator/refreshwait"
	"muster/proxies"
	"muster/tasks"
	"muster/tasks/tasktype"
)

// ProxyCounts are the sizes of a proxy pool.
type ProxyCounts struct {
	Candidates int `json:"candidates"` // in the last refresh
	Alive      int `json:"alive"`      // candidates that are alive
	Usable     int `json:"usable"`     // in the pool now: alive and not transparent
}

// ErrFewProxies means that fewer proxies are usable than proxies.min_usable, even after a refresh.
var ErrFewProxies = errors.New("not enough usable proxies")

// ProxyKeeper keeps the proxy pool of an orchestrator filled. Its methods may be called concurrently.
type ProxyKeeper struct {
	system  *System
	opts    Options
	workers *Workers
	waits   *waits

	mu sync.Mutex // serializes refreshes
}

// Ensure refreshes the pool if fewer than proxies.min_usable proxies are usable. It returns ErrFewProxies if the refresh did
// not find enough, or the error of the refresh.
func (k *ProxyKeeper) Ensure(ctx context.Context) error {
	enough, err := k.enough(ctx)
	if err != nil || enough {
		return err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	// A concurrent refresh may have filled the pool.
	if enough, err := k.enough(ctx); err != nil || enough {
		return err
	}
	if !k.system.cfg().Proxies.HasSources() {
		return fmt.Errorf("%w, and proxies.sources is empty: add lists of proxies to proxies.sources; if sites may see your own address, scrape with --direct, or set proxies.fallback (or proxy.fallback of the definition) to direct", ErrFewProxies)
	}
	_, err = k.run(ctx)
	if errors.Is(err, refreshwait.ErrNotEnough) {
		usable, countErr := k.system.Pool.Usable(ctx)
		if countErr != nil {
			return countErr
		}
		return fmt.Errorf("%w: %d of %d (proxies.min_usable); add sources or lower proxies.min_usable", ErrFewProxies, usable, k.system.cfg().Proxies.MinUsable)
	}
	return err
}

// lookEvery is the interval at which Keep counts the pool.
const lookEvery = 10 * time.Second

// Keep refreshes the pool whenever fewer than proxies.min_usable proxies are usable, until ctx is done. It backs off
// exponentially, up to an hour, after a refresh that found too few. It returns immediately if there are no sources.
func (k *ProxyKeeper) Keep(ctx context.Context) { k.keep(ctx, lookEvery) }

func (k *ProxyKeeper) keep(ctx context.Context, every time.Duration) {
	if !k.system.cfg().Proxies.HasSources() {
		return
	}
	look := time.NewTimer(0)
	defer look.Stop()
	for wait := every; ; {
		select {
		case <-ctx.Done():
			return
		case <-look.C:
		}
		switch err := k.Ensure(ctx); {
		case ctx.Err() != nil:
			return
		case err != nil:
			wait = min(max(2*wait, 6*every), time.Hour)
			k.opts.Logger.ErrorContext(ctx, "cannot refill the proxy pool", "err", err, "next_try", wait)
		default:
			wait = every
		}
		look.Reset(wait)
	}
}

// Refresh collects candidates from the sources, checks them and publishes the pool, regardless of its size. It joins a
// running refresh.
func (k *ProxyKeeper) Refresh(ctx context.Context) (proxies.Report, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	report, err := k.run(ctx)
	if errors.Is(err, refreshwait.ErrNotEnough) {
		err = nil // the caller reads the report
	}
	return report, err
}

func (k *ProxyKeeper) run(ctx context.Context) (proxies.Report, error) {
	if err := k.workers.Start(ctx); err != nil {
		return proxies.Report{}, err
	}
	track := k.opts.Display.Track("proxies")
	id, err := k.system.proxies.StartRefresh(ctx)
	if err != nil {
		track.Fail(err.Error())
		return proxies.Report{}, err
	}
	run := tasks.Attach[proxies.Report](k.system.Client, id)
	progress := func(ctx context.Context, p tasktype.Progress) monitor.Progress { return k.progress(ctx, id, p) }
	report, err := await(ctx, k.waits, track, run, proxies.ProgressPrefix, progress, refreshwait.Job[proxies.Report]{
		Name: "proxy refresh", Enough: k.enough,
		Stored: func(ctx context.Context) (proxies.Report, bool, error) { return k.system.Pool.Report(ctx, id) },
		File:   func() (proxies.Report, bool, error) { return proxies.ReadReport(k.system.cfg().DataDir, id) },
	})
	switch {
	case err == nil, errors.Is(err, refreshwait.ErrNotEnough):
		track.Done(fmt.Sprintf("%d candidates, %d alive, %d usable", report.Candidates, report.Alive, report.Usable))
	default:
		track.Fail(err.Error())
	}
	return report, err
}

// fewChunks is the largest number of chunks for which progress counts individual probes. Larger refreshes have more nodes
// to read, and finish chunks often enough.
const fewChunks = 10

// progress returns the number of candidates that the refresh id has probed.
func (k *ProxyKeeper) progress(ctx context.Context, id string, p tasktype.Progress) monitor.Progress {
	shown := monitor.Progress{Done: int64(p.ChunksDone) * proxies.ChunkSize, Unit: "proxies"}
	keys, err := refreshwait.ReadKeys(ctx, k.system.Client.Redis(), proxies.ProgressPrefix, id)
	if err != nil || keys.Candidates == 0 {
		return monitor.Progress{Unit: shown.Unit} // still reading the sources; the wait reports errors
	}
	shown.Total = int64(keys.Candidates)
	if p.ChunksDone < p.Chunks && p.Chunks <= fewChunks {
		nodes, err := k.system.Client.Workflow(id).Nodes(ctx)
		if err != nil {
			return shown
		}
		for _, n := range nodes {
			if n.Task == proxies.Check.Name() && !n.Status.Terminal() {
				shown.Done += int64(n.Done)
			}
		}
	}
	shown.Done = min(shown.Done, shown.Total)
	if usable, err := k.system.Pool.Usable(ctx); err == nil {
		shown.Note = fmt.Sprintf("%d usable", usable)
	}
	return shown
}

func (k *ProxyKeeper) enough(ctx context.Context) (bool, error) {
	usable, err := k.system.Pool.Usable(ctx)
	if err != nil {
		return false, fmt.Errorf("count the usable proxies: %w", err)
	}
	return usable >= k.system.cfg().Proxies.MinUsable, nil
}

// count reads the sizes of the pool.
func (k *ProxyKeeper) count(ctx context.Context, counts *ProxyCounts) error {
	status, err := k.system.Pool.Status(ctx)
	if err != nil {
		return err
	}
	counts.Candidates, counts.Alive = status.Candidates, status.Alive
	counts.Usable, err = k.system.Pool.Usable(ctx)
	return err
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

// await waits for a job as job describes it, with the prefix of its progress keys, and displays its progress.
func await[O any](ctx context.Context, w *waits, track *monitor.Track, run *tasks.Run[O], prefix string, progress func(context.Context, tasktype.Progress) monitor.Progress, job refreshwait.Job[O]) (O, error) {
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
					track.Update(progress(showing, p))
				}
			}
		}
	})
	defer func() { stop(); shown.Wait() }()

	stored := job.Stored
	job.Stored = func(ctx context.Context) (O, bool, error) {
		out, ok, err := stored(ctx)
		return out, ok, withoutTask(err)
	}
	job.Event = func(ctx context.Context) (O, error) {
		out, err := run.Wait(ctx)
		return out, withoutTask(err)
	}
	job.Exists = func(ctx context.Context) (bool, error) {
		_, err := run.Status(ctx)
		if errors.Is(err, tasks.ErrNotFound) {
			return false, nil
		}
		return err == nil, err
	}
	job.Keys = func(ctx context.Context) (refreshwait.Keys, error) {
		return refreshwait.ReadKeys(ctx, w.system.Client.Redis(), prefix, run.ID())
	}
	job.Alive = w.alive
	out, stage, err := refreshwait.Wait(ctx, w.waiter(), job)
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
