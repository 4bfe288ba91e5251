package orchestrator

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"muster/orchestrator/monitor"
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
	if errors.Is(err, ErrNotEnough) {
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
	if errors.Is(err, ErrNotEnough) {
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
	report, err := await(ctx, k.waits, track, run, proxies.ProgressPrefix, progress, awaited[proxies.Report]{
		name: "proxy refresh", enough: k.enough,
		stored: func(ctx context.Context) (proxies.Report, bool, error) { return k.system.Pool.Report(ctx, id) },
		file:   func() (proxies.Report, bool, error) { return proxies.ReadReport(k.system.cfg().DataDir, id) },
	})
	switch {
	case err == nil, errors.Is(err, ErrNotEnough):
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
	keys, err := readKeys(ctx, k.system.Client.Redis(), proxies.ProgressPrefix, id)
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
