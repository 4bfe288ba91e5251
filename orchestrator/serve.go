package orchestrator

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"muster/orchestrator/api"
	"muster/orchestrator/config"
	"muster/orchestrator/health"
	"muster/proxies"
	"muster/sites"
	"muster/tasks"
	"muster/tasks/metrics"
)

// Serve sends what the schedule says, and serves the dashboard if the settings
// want one, until ctx is done.
func (o *Orchestrator) Serve(ctx context.Context) error {
	if err := o.StartWorkers(ctx); err != nil {
		return err
	}
	schedule, err := o.schedule(o.cfg, o.Sites.Registry())
	if err != nil {
		return err
	}
	intake, running := errgroup.WithContext(ctx)
	intake.Go(func() error { return o.runSchedule(running, schedule) })
	if o.cfg.Dashboard.Enabled {
		intake.Go(func() error {
			return serveDashboard(running, o.cfg, o.Client, o.Sites.Registry(), o.opts.Logger, nil, o.Metrics)
		})
	}
	intake.Go(func() error { o.KeepProxies(running); return nil })
	o.opts.Logger.Info("running; Ctrl-C stops", "redis", o.redis.Mode(), "data", o.cfg.DataDir)
	if err := intake.Wait(); err != nil {
		return err
	}
	return context.Cause(ctx)
}

// recheckEntry is the name of the schedule's entry for the continuous check.
const recheckEntry = "proxies.recheck"

// runSchedule sends what s says, or what Reload puts in its place, until ctx is
// done.
func (o *Orchestrator) runSchedule(ctx context.Context, s *tasks.Scheduler) error {
	for {
		running, stop := context.WithCancel(ctx)
		ended := make(chan error, 1)
		go func() { ended <- s.Run(running) }()
		select {
		case err := <-ended:
			stop()
			return err
		case s = <-o.schedules:
			stop()
			if err := <-ended; err != nil {
				return err
			}
		}
	}
}

// Reload takes from cfg, while Serve runs, the site definitions, sites.schedule,
// proxies.refresh_every, proxies.recheck_every and, unless workers are processes
// of their own, workers.concurrency. The rest of cfg takes a new start. When
// something is wrong nothing changes.
func (o *Orchestrator) Reload(cfg config.Config) error {
	again := o.cfg
	again.Sites.Dir, again.Sites.Schedule = cfg.Sites.Dir, cfg.Sites.Schedule
	again.Proxies.RefreshEvery, again.Proxies.RecheckEvery = cfg.Proxies.RefreshEvery, cfg.Proxies.RecheckEvery
	registry, err := LoadSites(again)
	if err != nil {
		return err
	}
	schedule, err := o.schedule(again, registry)
	if err != nil {
		return err
	}
	o.Sites.Registry().Replace(registry)
	o.logBroken()
	select {
	case <-o.schedules: // one that Serve has not taken yet
	default:
	}
	o.schedules <- schedule
	log := o.opts.Logger.With("sites", len(registry.Names()), "sites.schedule", again.Sites.Schedule,
		"proxies.refresh_every", again.Proxies.RefreshEvery, "proxies.recheck_every", again.Proxies.RecheckEvery)
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.worker != nil {
		o.worker.SetConcurrency(cfg.Workers.Concurrency)
		log = log.With("workers.concurrency", cfg.Workers.Concurrency)
	}
	log.Info("reloaded; other settings take a new start")
	return nil
}

// schedule returns the schedule of cfg, of the sites of registry. However many
// orchestrators have it, each tick is sent once.
func (o *Orchestrator) schedule(cfg config.Config, registry *sites.Registry) (*tasks.Scheduler, error) {
	scrapes := map[string]func(ctx context.Context, id string){} // by entry: what is to be called when its tick was sent
	s := tasks.NewScheduler(o.Client, tasks.SchedulerConfig{
		Logger: o.opts.Logger,
		Sent: func(name, id string) {
			if sent := scrapes[name]; sent != nil {
				sent(context.Background(), id)
			}
			level := slog.LevelInfo
			if name == recheckEntry { // every minute
				level = slog.LevelDebug
			}
			o.opts.Logger.Log(context.Background(), level, "scheduled job sent", "schedule", name, "job", id)
		},
	})
	if every := cfg.Proxies.RecheckEvery; every > 0 && cfg.Proxies.CanCheck() {
		if err := s.AddFunc(recheckEntry, "@every "+every.String(), func(time.Time) tasks.Work { return proxies.Recheck.S(proxies.RecheckInput{Archived: true}) },
			tasks.Unique(recheckEntry, time.Hour)); err != nil { // one after the other, however long one takes
			return nil, err
		}
	}
	if every := cfg.Proxies.RefreshEvery; every > 0 && cfg.Proxies.HasSources() {
		if err := s.AddFunc("proxies.refresh", "@every "+every.String(), func(time.Time) tasks.Work { return o.Refresh(context.Background()) },
			tasks.ProgressKeys(proxies.ProgressPrefix), tasks.Unique(proxies.ProgressPrefix, every)); err != nil {
			return nil, err
		}
	}
	for i, from := range cfg.Proxies.Sources {
		every := from.EveryOr(0)
		if every <= 0 {
			continue
		}
		one := o.source(from)
		if err := s.AddFunc(fmt.Sprintf("proxies.refresh.%d", i+1), "@every "+every.String(), func(time.Time) tasks.Work { return o.proxies.Refresh(context.Background(), one) },
			tasks.ProgressKeys(proxies.ProgressPrefix), tasks.Unique(proxies.ProgressPrefix, every)); err != nil {
			return nil, err
		}
	}
	order, err := registry.Order(slices.Sorted(maps.Keys(cfg.Sites.Schedule))...)
	if err != nil {
		return nil, fmt.Errorf("sites.schedule: %w", err)
	}
	for _, name := range order { // of the same time, those that others depend on first
		spec, scheduled := cfg.Sites.Schedule[name]
		if _, err := registry.Definition(name); !scheduled || err != nil { // one that is broken has been logged
			continue
		}
		entry := "scrape." + name
		if err := s.AddFunc(entry, spec, func(time.Time) tasks.Work {
			work, sent, err := o.Sites.Scrape(context.Background(), name, sites.ScrapeOptions{})
			if err != nil {
				o.opts.Logger.Error("cannot scrape as scheduled", "site", name, "err", err)
				return nil
			}
			scrapes[entry] = sent
			return work
		}, o.Sites.SendOptions(name)...); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// ServeDashboard serves the dashboard of the settings, and metrics of the fleet
// and of more, until ctx is done. Ready, if not nil, is told its address.
func ServeDashboard(ctx context.Context, cfg config.Config, client *tasks.Client, logger *slog.Logger, ready func(url string), more ...prometheus.Collector) error {
	registry, err := LoadSites(cfg)
	if err != nil {
		logger.Warn("the dashboard shows the sites that have jobs only", "err", err)
	}
	return serveDashboard(ctx, cfg, client, registry, logger, ready, more...)
}

func serveDashboard(ctx context.Context, cfg config.Config, client *tasks.Client, registry *sites.Registry, logger *slog.Logger, ready func(url string), more ...prometheus.Collector) error {
	pool := proxies.NewPool(proxies.PoolConfig{Redis: client.Redis(), Logger: logger})
	defer pool.Close()
	shown, err := sites.NewService(sites.Config{Client: client, Registry: registry, OutDir: cfg.Records(), Logger: logger})
	if err != nil {
		return err
	}
	defer shown.Close()
	checks := Health(cfg, client, pool)
	return api.Serve(ctx, api.Config{
		Client: client, Listen: cfg.Dashboard.Listen, Write: !cfg.Dashboard.ReadOnly, Keys: cfg.Dashboard.Keys, Hosts: cfg.Dashboard.Hosts,
		Metrics: metrics.Handler(append(more, metrics.NewFleet(client), proxies.NewMetrics(pool))...),
		Sites:   shown, Check: checks.Run, Health: checks, Ready: ready, Logger: logger,
	})
}

// Health returns the checks of a system: Redis, its memory, the workers, and,
// when there are sources for them, the proxies.
func Health(cfg config.Config, client *tasks.Client, pool *proxies.Pool) *health.Registry {
	r := &health.Registry{}
	r.Add(health.Redis(client.Writable, cfg.Redis.PingTimeout))
	r.Add(health.Memory(health.MemoryInfo(client)))
	r.Add(health.Workers(client.Workers, cfg.Workers.PingTimeout))
	if cfg.Proxies.HasSources() {
		r.Add(health.Proxies(pool.Usable, cfg.Proxies.MinUsable))
	}
	return r
}
