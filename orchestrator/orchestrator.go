// Package orchestrator is the system, alive for as long as a function runs.
//
// [Run] brings up Redis and workers, gives the function an [Orchestrator] to
// send jobs with, and when the function has ended, by whatever way, stops what
// it started, dependents first:
//
//	intake (schedule, dashboard) → sites → workers → their log → Redis
//
// Everything it uses is checked before it is used, and started only when it is
// not there. Only what it started is stopped.
package orchestrator

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"muster/orchestrator/config"
	"muster/orchestrator/monitor"
	"muster/orchestrator/redisd"
	"muster/orchestrator/supervise"
	"muster/tasks"
)

// Options are what Run needs besides the settings.
type Options struct {
	// Logger hears what an operator should know. Defaults to none.
	Logger *slog.Logger

	// Display shows how jobs come along. Defaults to none.
	Display *monitor.Display

	// Hard, once done, ends every drain at once. Defaults to never.
	Hard context.Context

	// Reuse takes what an orchestrator runs on the same data folder, its Redis
	// and its workers, and starts only what is not there. Defaults to false: an
	// orchestrator has its own.
	Reuse bool
}

func (o Options) withDefaults() Options {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Display == nil {
		o.Display = monitor.New(io.Discard, monitor.None)
	}
	if o.Hard == nil {
		o.Hard = context.Background()
	}
	return o
}

// Orchestrator is the running system. Its methods may be called concurrently
// while the function given to Run runs.
type Orchestrator struct {
	*System
	opts  Options
	redis *redisd.Server
	scope scope

	mu      sync.Mutex    // guards the fields below, to the empty line
	workers bool          // they are up, or others' are used
	own     bool          // they are ours
	worker  *tasks.Worker // of this process; nil if none
	writing bool          // records of scrapes are written here

	schedules chan *tasks.Scheduler // the one that Serve is to go on with

	refresh sync.Mutex // held while a refresh is waited for: one at a time
}

// Run calls fn with a running system, and stops the system when fn returns or
// panics. Its error is that of bringing the system up, or else what fn and the
// stop returned. The end of ctx does not stop the system by itself: it is fn's
// business to return then. Running tasks get the drain time of the settings to
// finish, or until Options.Hard is done.
func Run(ctx context.Context, cfg config.Config, opts Options, fn func(context.Context, *Orchestrator) error) (err error) {
	o := &Orchestrator{opts: opts.withDefaults(), schedules: make(chan *tasks.Scheduler, 1)}
	o.scope.logger = o.opts.Logger
	defer func() {
		err = errors.Join(err, o.scope.close(o.opts.Hard))
	}()
	if err := o.open(ctx, cfg); err != nil {
		return err
	}
	return fn(ctx, o)
}

// open brings up the data folder, Redis and the services. Workers are started
// by whoever needs them.
func (o *Orchestrator) open(ctx context.Context, cfg config.Config) error {
	if err := writable(cfg.DataDir); err != nil {
		return err
	}
	stale, err := supervise.CleanStale(ctx, runDir(cfg), 5*time.Second, o.opts.Logger)
	if err != nil {
		return fmt.Errorf("clear what a crashed run left: %w", err)
	}
	for _, s := range stale {
		o.opts.Logger.Info("cleared the leftover of a crashed run", "process", s.Name, "pid", s.PID, "stopped", s.Running)
	}

	if o.opts.Reuse && cfg.Redis.URL == "" {
		if url, err := redisd.Discover(ctx, cfg.DataDir); err == nil {
			cfg.Redis.URL, cfg.Redis.Mode = url, string(redisd.External)
		}
	}
	o.redis, err = startRedis(ctx, cfg, o.opts.Logger)
	if err != nil {
		return err
	}
	o.scope.add("redis", func(context.Context) error {
		// What Redis holds must be written down however impatient the user is.
		return o.redis.Stop(context.WithoutCancel(ctx))
	})
	for _, w := range o.redis.Warnings() {
		o.opts.Logger.Warn(w)
	}

	client, err := tasks.Connect(ctx, o.redis.URL())
	if err != nil {
		return err
	}
	o.scope.add("client", func(context.Context) error { return client.Close() })
	o.System, err = NewSystem(cfg, client, o.opts.Logger)
	if err != nil {
		return err
	}
	o.scope.add("services", func(context.Context) error { return o.System.Close() })
	if !o.opts.Reuse {
		o.logBroken()
	}
	for _, s := range stale {
		o.bury(workerName(s.Owner, s.Name))
	}
	return nil
}

// Config returns the settings.
func (o *Orchestrator) Config() config.Config { return o.cfg }

// Redis returns the Redis in use.
func (o *Orchestrator) Redis() *redisd.Server { return o.redis }

func startRedis(ctx context.Context, cfg config.Config, logger *slog.Logger) (*redisd.Server, error) {
	return redisd.Start(ctx, redisd.Config{
		URL: cfg.Redis.URL, Mode: redisd.Mode(cfg.Redis.Mode), DataDir: cfg.DataDir, Port: cfg.Redis.Port,
		Server: cfg.Redis.Server, PingTimeout: cfg.Redis.PingTimeout, Attempts: cfg.Redis.Attempts,
		Interval: cfg.Redis.Interval, SaveEvery: cfg.Redis.SaveEvery, Logger: logger,
	})
}

func runDir(cfg config.Config) string { return filepath.Join(cfg.DataDir, "run") }

// writable makes the data folder and sees that files can be made in it.
func writable(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("make the data folder: %w; choose another with --data-dir", err)
	}
	f, err := os.CreateTemp(dir, ".writable-*")
	if err != nil {
		return fmt.Errorf("write to the data folder: %w; choose another with --data-dir", err)
	}
	return errors.Join(f.Close(), os.Remove(f.Name()))
}
