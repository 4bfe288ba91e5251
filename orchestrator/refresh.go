package orchestrator

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"muster/orchestrator/job"
	"muster/orchestrator/monitor"
	"muster/proxies"
	"muster/tasks"
	"muster/tasks/tasktype"
)

// ErrFewProxies says that there are fewer usable proxies than the settings
// ask for, after all that can be done about it.
var ErrFewProxies = errors.New("not enough usable proxies")

// EnsureProxies sees that at least proxies.min_usable proxies are usable, and
// refreshes the pool when they are not. Its error is ErrFewProxies when a
// refresh did not bring enough, or why there could be none.
func (o *Orchestrator) EnsureProxies(ctx context.Context) error {
	enough, err := o.enoughProxies(ctx)
	if err != nil || enough {
		return err
	}
	o.refresh.Lock()
	defer o.refresh.Unlock()
	// Whoever held the lock may have brought them.
	if enough, err := o.enoughProxies(ctx); err != nil || enough {
		return err
	}
	if !o.cfg.Proxies.HasSources() {
		return fmt.Errorf("%w, and no source to get them from: name lists of proxies in proxies.sources; or, where sites may see your own address, scrape with --direct, or set proxies.fallback (or proxy.fallback of the definition) to direct", ErrFewProxies)
	}
	_, err = o.runRefresh(ctx)
	if errors.Is(err, job.ErrNotEnough) {
		usable, countErr := o.Pool.Usable(ctx)
		if countErr != nil {
			return countErr
		}
		return fmt.Errorf("%w: %d of the %d that proxies.min_usable asks for; add sources, or lower it", ErrFewProxies, usable, o.cfg.Proxies.MinUsable)
	}
	return err
}

// lookEvery is how often KeepProxies counts the pool.
const lookEvery = 10 * time.Second

// KeepProxies refreshes the pool whenever it has fewer usable proxies than the
// settings ask for, until ctx is done. After a refresh that did not help it
// waits longer and longer, up to an hour, before the next. It does nothing when
// there are no sources.
func (o *Orchestrator) KeepProxies(ctx context.Context) { o.keepProxies(ctx, lookEvery) }

func (o *Orchestrator) keepProxies(ctx context.Context, every time.Duration) {
	if !o.cfg.Proxies.HasSources() {
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
		switch err := o.EnsureProxies(ctx); {
		case ctx.Err() != nil:
			return
		case err != nil:
			wait = min(max(2*wait, 6*every), time.Hour)
			o.opts.Logger.Error("the pool has too few proxies", "err", err, "next_try", wait)
		default:
			wait = every
		}
		look.Reset(wait)
	}
}

// RefreshProxies collects candidates from the sources, checks them and
// publishes the pool, however many proxies there are already. A refresh that
// is under way is joined.
func (o *Orchestrator) RefreshProxies(ctx context.Context) (proxies.Report, error) {
	o.refresh.Lock()
	defer o.refresh.Unlock()
	report, err := o.runRefresh(ctx)
	if errors.Is(err, job.ErrNotEnough) {
		err = nil // what came of it is for the caller to judge
	}
	return report, err
}

func (o *Orchestrator) runRefresh(ctx context.Context) (proxies.Report, error) {
	if err := o.StartWorkers(ctx); err != nil {
		return proxies.Report{}, err
	}
	track := o.opts.Display.Track("proxies")
	run, err := o.Refresh(ctx).Send(ctx, o.Client,
		tasks.ProgressKeys(proxies.ProgressPrefix), tasks.Unique(proxies.ProgressPrefix, o.waiter().Timeout.Unknown))
	if err != nil && !errors.Is(err, tasks.ErrDuplicate) {
		track.Fail(err.Error())
		return proxies.Report{}, fmt.Errorf("send the proxy refresh: %w", err)
	}
	report, err := await(ctx, o, track, run, awaited[proxies.Report]{
		name: "proxy refresh", prefix: proxies.ProgressPrefix,
		enough: o.enoughProxies,
		stored: func(ctx context.Context) (proxies.Report, bool, error) { return o.Pool.Report(ctx, run.ID()) },
		file:   func() (proxies.Report, bool, error) { return proxies.ReadReport(o.cfg.DataDir, run.ID()) },
		progress: func(ctx context.Context, p tasktype.Progress) monitor.Progress {
			shown := monitor.Progress{Done: int64(p.ChunksDone), Total: int64(p.Chunks), Unit: "chunks"}
			if usable, err := o.Pool.Usable(ctx); err == nil {
				shown.Note = fmt.Sprintf("%d usable", usable)
			}
			return shown
		},
	})
	switch {
	case err == nil, errors.Is(err, job.ErrNotEnough):
		track.Done(fmt.Sprintf("%d candidates, %d alive, %d usable", report.Candidates, report.Alive, report.Usable))
	default:
		track.Fail(err.Error())
	}
	return report, err
}

func (o *Orchestrator) enoughProxies(ctx context.Context) (bool, error) {
	usable, err := o.Pool.Usable(ctx)
	if err != nil {
		return false, fmt.Errorf("count the usable proxies: %w", err)
	}
	return usable >= o.cfg.Proxies.MinUsable, nil
}

// awaited is what await needs to know of a job besides its handle.
type awaited[O any] struct {
	name, prefix string
	stored       func(context.Context) (O, bool, error) // the answer that the job left in Redis
	file         func() (O, bool, error)                // and in a file
	enough       func(context.Context) (bool, error)
	moves        func(context.Context) (string, error)
	progress     func(context.Context, tasktype.Progress) monitor.Progress
}

// showEvery is how often a job's progress is looked at while it is waited for.
const showEvery = 250 * time.Millisecond

// await shows how a job comes along, waits for its end and returns its answer.
func await[O any](ctx context.Context, o *Orchestrator, track *monitor.Track, run *tasks.AsyncResult[O], a awaited[O]) (O, error) {
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
				if p, err := run.Progress(showing); err == nil { // the wait tells of trouble
					track.Update(a.progress(showing, p))
				}
			}
		}
	})
	defer func() { stop(); shown.Wait() }()

	out, stage, err := job.Wait(ctx, o.waiter(), job.Job[O]{
		Name:  a.name,
		Event: run.Wait,
		Known: func(ctx context.Context) (bool, error) {
			_, err := run.Status(ctx)
			if errors.Is(err, tasks.ErrUnknown) {
				return false, nil
			}
			return err == nil, err
		},
		Keys: func(ctx context.Context) (job.Keys, error) {
			return job.ReadKeys(ctx, o.Client.Redis(), a.prefix, run.ID())
		},
		Stored: a.stored,
		File:   a.file,
		Moves:  a.moves,
		Enough: a.enough,
		Alive:  o.alive,
	})
	o.opts.Logger.Debug("the wait is over", "job", run.ID(), "stage", stage, "err", err)
	return out, err
}

func (o *Orchestrator) waiter() job.Waiter {
	w := o.cfg.Wait
	return job.Waiter{
		Poll: w.Poll, Warn: w.Warn, Limit: w.Timeout, Logger: o.opts.Logger,
		Timeout: job.Timeout{Workers: o.cfg.Workers.Concurrency * max(1, o.cfg.Workers.Processes), PerChunk: w.PerChunk, Buffer: w.Buffer, Floor: w.Floor, Unknown: w.Unknown},
	}
}
