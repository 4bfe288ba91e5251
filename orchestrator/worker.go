package orchestrator

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"

	"golang.org/x/sync/errgroup"

	"muster/orchestrator/api"
	"muster/orchestrator/config"
	"muster/orchestrator/redisd"
	"muster/tasks"
	"muster/tasks/metrics"
)

// WorkerOptions are the options of RunWorker besides the settings.
type WorkerOptions struct {
	Name   string          // worker name. Default: a unique name
	Hard   context.Context // aborts the drain when done. Default: never
	Logger *slog.Logger    // Default: no logging
	Ready  func()          // called when the worker accepts tasks; optional
	// OfOrchestrator makes the worker run the tasks of the orchestrator's schedules, with its definitions and files.
	OfOrchestrator bool
	// Watch supplies new settings while the worker runs. Optional.
	Watch Watch
}

// RunWorker processes tasks from the Redis of the settings, or of the orchestrator that runs on the data directory, until
// ctx is done. Then it waits for running tasks for at most the drain time of the settings. It serves metrics if
// workers.metrics_listen is set. If the orchestrator stops the Redis, RunWorker returns redisd.ErrGone.
func RunWorker(ctx context.Context, cfg config.Config, opts WorkerOptions) error {
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	if opts.Hard == nil {
		opts.Hard = context.Background()
	}
	if cfg.Redis.URL != "" {
		return runWorker(ctx, cfg, cfg.Redis.URL, opts)
	}
	url, err := redisd.Discover(ctx, cfg.DataDir)
	if err != nil {
		return err
	}
	running, end := context.WithCancelCause(ctx)
	hard, kill := context.WithCancel(opts.Hard)
	defer kill()
	opts.Hard = hard
	var watch sync.WaitGroup
	watch.Go(func() {
		if err := redisConfig(cfg, opts.Logger).Watch(running, url); err != nil {
			end(err)
			kill() // running tasks could not store their results
		}
	})
	err = runWorker(running, cfg, url, opts)
	end(nil)
	watch.Wait()
	if cause := context.Cause(running); errors.Is(cause, redisd.ErrGone) {
		return cause
	}
	return err
}

// runWorker implements RunWorker with the Redis at url.
func runWorker(ctx context.Context, cfg config.Config, url string, opts WorkerOptions) error {
	at := cfg
	at.Redis.URL = url
	client, err := Connect(ctx, at)
	if err != nil {
		return err
	}
	defer client.Close()
	system, err := NewSystem(cfg, client, opts.Logger)
	if err != nil {
		return err
	}
	defer system.Close()
	worker, err := system.NewWorker(opts.Name, opts.OfOrchestrator, opts.Ready)
	if err != nil {
		return err
	}
	defer context.AfterFunc(opts.Hard, worker.Kill)()
	// Draining tasks write records until the worker has stopped.
	writing, stopWriting := context.WithCancel(context.WithoutCancel(ctx))
	var records sync.WaitGroup
	records.Go(func() { _ = system.Sites.Run(writing) }) // always nil
	defer records.Wait()
	defer stopWriting()
	defer system.runPool()()
	opts.Logger.InfoContext(ctx, "worker started", "worker", worker.Name())
	defer watchSystem(ctx, system, opts.Watch, func(cfg config.Config) { worker.SetConcurrency(cfg.Workers.Concurrency) })()
	if cfg.Workers.Metrics == "" {
		return worker.Run(ctx)
	}
	served, err := Guarded(system)
	if err != nil {
		return err
	}
	served.Component, served.Listen, served.Metrics = "worker", cfg.Workers.Metrics, metrics.Handler(system.Metrics, system.scrapes, RuntimeMetrics())
	both, running := errgroup.WithContext(ctx)
	// Draining tasks are counted: metrics are served until the worker has stopped.
	serving, stop := context.WithCancel(context.WithoutCancel(ctx))
	both.Go(func() error {
		defer stop()
		return worker.Run(running)
	})
	both.Go(func() error {
		return api.ServeMetrics(serving, served)
	})
	return both.Wait()
}

// Connect returns a client of the Redis of the settings, or of the orchestrator that runs on the data directory. It does not
// start Redis. It migrates a store of an older release.
func Connect(ctx context.Context, cfg config.Config) (*tasks.Client, error) {
	url := cfg.Redis.URL
	if url == "" {
		var err error
		if url, err = redisd.Discover(ctx, cfg.DataDir); err != nil {
			return nil, err
		}
	}
	client, err := tasks.Connect(ctx, url)
	if redisd.RefusesLogin(err) {
		return nil, fmt.Errorf("%w; use an address with user and password, redis://user:password@host:port; for the Redis of muster start, use --data-dir instead of an address", err)
	}
	if err != nil {
		return nil, err
	}
	if err := NewStore(client, nil).Open(ctx); err != nil {
		return nil, errors.Join(err, client.Close())
	}
	return client, nil
}
