// Package orchestrator starts and stops the complete system: Redis, workers, proxies, sites, jobs and the HTTP API.
//
// [Run] starts Redis and passes an [Orchestrator] to a function, which starts workers and sends jobs. When the function
// returns or panics, Run stops the parts that it started, dependents first:
//
//	intake (HTTP API) → sites → workers → worker log → Redis
//
// Run uses a part that is already running and leaves it running.
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

	"muster/internal/schema"
	"muster/internal/trust"
	"muster/orchestrator/config"
	"muster/orchestrator/monitor"
	"muster/orchestrator/redisd"
	"muster/orchestrator/supervise"
	"muster/tasks"
)

// Options are the options of Run besides the settings.
type Options struct {
	// Logger receives messages for the operator. Default: no logging.
	Logger *slog.Logger

	// Display shows the progress of jobs. Default: no display.
	Display *monitor.Display

	// Hard aborts all drains when it is done. Default: never.
	Hard context.Context

	// Reuse uses the Redis and the workers of an orchestrator that runs on the same data directory, and starts only
	// missing parts.
	Reuse bool

	// Existing makes Run return redisd.ErrNoStore instead of creating an empty store.
	Existing bool

	// NeedAPI makes Serve fail if the listen address of the HTTP API is in use. By default Serve logs a warning and
	// continues without the API.
	NeedAPI bool

	// Ready is called with the URL of the pages once Serve accepts requests. Optional.
	Ready func(url string)
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

// Orchestrator is the running system. Its fields may be used concurrently until the function passed to Run returns.
type Orchestrator struct {
	*System
	Workers *Workers
	Proxies *ProxyKeeper
	Scraper *Scraper

	opts  Options
	redis *redisd.Server
	scope scope

	reloading sync.Mutex // guards onReload
	onReload  []func(config.Config)
}

// Run starts a system, calls fn and stops the system when fn returns or panics. It returns the error of the start, or the
// joined errors of fn and of the stop. The context of fn is canceled with ctx, and with the cause redisd.ErrGone when the
// orchestrator that owns the Redis has exited; fn must then return. Running tasks may continue for the drain time of the
// settings, or until Options.Hard is done.
func Run(ctx context.Context, cfg config.Config, opts Options, fn func(context.Context, *Orchestrator) error) (err error) {
	o := &Orchestrator{opts: opts.withDefaults()}
	o.scope.logger = o.opts.Logger
	defer func() {
		err = errors.Join(err, o.scope.close(o.opts.Hard))
	}()
	if err := o.open(ctx, cfg); err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	var watching sync.WaitGroup
	defer watching.Wait()
	defer cancel(nil)
	watching.Go(func() { cancel(o.redis.Watch(ctx)) })
	return fn(ctx, o)
}

// open starts Redis and the services. Workers start on first use.
func (o *Orchestrator) open(ctx context.Context, cfg config.Config) error {
	if o.opts.Existing {
		if err := redisd.Exists(ctx, redisConfig(cfg, o.opts.Logger)); err != nil {
			return err
		}
	}
	if err := writable(cfg.DataDir); err != nil {
		return err
	}
	stale, err := supervise.CleanStale(ctx, runDir(cfg), 5*time.Second, o.opts.Logger)
	if err != nil {
		return fmt.Errorf("clean up after a crashed run: %w", err)
	}
	for _, s := range stale {
		_ = os.Remove(workerSettings(cfg, s.Owner)) // most have none
		o.opts.Logger.InfoContext(ctx, "cleaned up after a crashed run", "process", s.Name, "pid", s.PID, "stopped", s.Running)
	}

	redis := redisConfig(cfg, o.opts.Logger)
	redis.Reuse, redis.Look = o.opts.Reuse, o.opts.Existing
	o.redis, err = redisd.Start(ctx, redis)
	if err != nil {
		return err
	}
	o.scope.add("redis", func(context.Context) error {
		// A forced stop must not keep Redis from saving its data.
		return o.redis.Stop(context.WithoutCancel(ctx))
	})
	if !o.opts.Reuse { // a command for a moment does not repeat the warnings of the orchestrator
		for _, w := range o.redis.Warnings() {
			o.opts.Logger.Warn(w)
		}
	}

	client, err := tasks.Connect(ctx, o.redis.URL())
	if err != nil {
		return err
	}
	o.scope.add("client", func(context.Context) error { return client.Close() })
	if err := NewStore(client, o.opts.Logger).Open(ctx); err != nil {
		return err
	}
	o.System, err = NewSystem(cfg, client, o.opts.Logger)
	if err != nil {
		return err
	}
	o.scope.add("services", func(context.Context) error { return o.System.Close() })
	o.alone = o.opts.Reuse && o.redis.Mode() != redisd.External
	if !o.opts.Reuse {
		o.logBroken()
	}
	for _, s := range stale {
		o.expireLeases(workerName(s.Owner, s.Name))
	}
	if o.redis.Mode() == redisd.Child { // it listens on loopback
		o.expireGone(ctx)
	}
	o.Workers = &Workers{system: o.System, opts: o.opts, redisURL: o.redis.URL(), scope: &o.scope}
	waits := &waits{o.System, o.opts.Logger, o.Workers.alive}
	o.Proxies = &ProxyKeeper{system: o.System, opts: o.opts, workers: o.Workers, waits: waits}
	o.Scraper = &Scraper{system: o.System, opts: o.opts, workers: o.Workers, proxies: o.Proxies, waits: waits, redisMode: string(o.redis.Mode())}
	return nil
}

// Redis returns the Redis in use.
func (o *Orchestrator) Redis() *redisd.Server { return o.redis }

func redisConfig(cfg config.Config, logger *slog.Logger) redisd.Config {
	return redisd.Config{
		URL: cfg.Redis.URL, Mode: redisd.Mode(cfg.Redis.Mode), DataDir: cfg.DataDir, Port: cfg.Redis.Port,
		Server: cfg.Redis.Server, PingTimeout: cfg.Redis.PingTimeout, Attempts: cfg.Redis.Attempts,
		Interval: cfg.Redis.Interval, Logger: logger,
	}
}

func runDir(cfg config.Config) string { return filepath.Join(cfg.DataDir, "run") }

// writable creates the data directory and checks that it is trusted and writable.
func writable(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("create the data directory: %w; choose another with --data-dir", err)
	}
	if err := trust.Dir(dir); err != nil {
		return fmt.Errorf("use the data directory: %w", err)
	}
	f, err := os.CreateTemp(dir, ".writable-*")
	if err != nil {
		return fmt.Errorf("write to the data directory: %w; choose another with --data-dir", err)
	}
	return errors.Join(f.Close(), os.Remove(f.Name()))
}

// scope records the running parts of the system and stops them in reverse order. Dependents start after their dependencies,
// so they stop first.
type scope struct {
	logger *slog.Logger
	mu     sync.Mutex // guards parts
	parts  []part
}

type part struct {
	name string
	stop func(context.Context) error
}

// add registers the stop function of a running part. It is called once. When its context is done, it must return
// immediately.
func (s *scope) add(name string, stop func(context.Context) error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.parts = append(s.parts, part{name, stop})
}

// close stops all parts in reverse order, even if some of them fail. A second call does nothing.
func (s *scope) close(ctx context.Context) error {
	s.mu.Lock()
	parts := s.parts
	s.parts = nil
	s.mu.Unlock()
	var errs []error
	for i := len(parts) - 1; i >= 0; i-- {
		s.logger.DebugContext(ctx, "stopping", "part", parts[i].name)
		if err := parts[i].stop(ctx); err != nil {
			errs = append(errs, fmt.Errorf("stop %s: %w", parts[i].name, err))
		}
	}
	return errors.Join(errs...)
}

// migrations are the migrations of the store, in order. The schema version of the store is the number of the last migration.
var migrations []schema.Migration

// NewStore returns the store of a client, with its schema version and its migration lock. A nil logger disables logging.
func NewStore(client *tasks.Client, logger *slog.Logger) *schema.Store {
	return schema.New(client.Redis(), migrations, logger)
}
