package orchestrator

import (
	"context"
	"fmt"
	"log/slog"
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
	schedule, err := o.schedule()
	if err != nil {
		return err
	}
	intake, running := errgroup.WithContext(ctx)
	intake.Go(func() error { return schedule.Run(running) })
	if o.cfg.Dashboard.Enabled {
		intake.Go(func() error {
			return ServeDashboard(running, o.cfg, o.Client, o.opts.Logger, nil, o.Metrics, memoryMetrics{o.Memory})
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

// schedule returns the schedule of the settings. However many orchestrators
// have it, each tick is sent once.
func (o *Orchestrator) schedule() (*tasks.Scheduler, error) {
	s := tasks.NewScheduler(o.Client, tasks.SchedulerConfig{
		Logger: o.opts.Logger,
		Sent: func(name, id string) {
			level := slog.LevelInfo
			if name == recheckEntry { // every minute
				level = slog.LevelDebug
			}
			o.opts.Logger.Log(context.Background(), level, "scheduled job sent", "schedule", name, "job", id)
		},
	})
	if every := o.cfg.Proxies.RecheckEvery; every > 0 && o.cfg.Proxies.CanCheck() {
		if err := s.AddFunc(recheckEntry, "@every "+every.String(), func() tasks.Work { return proxies.Recheck.S(proxies.RecheckInput{Archived: true}) },
			tasks.Unique(recheckEntry, time.Hour)); err != nil { // one after the other, however long one takes
			return nil, err
		}
	}
	if every := o.cfg.Proxies.RefreshEvery; every > 0 && o.cfg.Proxies.HasSources() {
		if err := s.AddFunc("proxies.refresh", "@every "+every.String(), func() tasks.Work { return o.Refresh() },
			tasks.ProgressKeys(proxies.ProgressPrefix), tasks.Unique(proxies.ProgressPrefix, every)); err != nil {
			return nil, err
		}
	}
	for i, from := range o.cfg.Proxies.Sources {
		every := from.EveryOr(0)
		if every <= 0 {
			continue
		}
		one := o.source(from)
		if err := s.AddFunc(fmt.Sprintf("proxies.refresh.%d", i+1), "@every "+every.String(), func() tasks.Work { return proxies.Refresh(one) },
			tasks.ProgressKeys(proxies.ProgressPrefix), tasks.Unique(proxies.ProgressPrefix, every)); err != nil {
			return nil, err
		}
	}
	for name, spec := range o.cfg.Sites.Schedule {
		if _, err := o.Sites.Registry().Definition(name); err != nil {
			return nil, fmt.Errorf("sites.schedule: %w", err)
		}
		if err := s.AddFunc("scrape."+name, spec, func() tasks.Work {
			work, err := o.Sites.Scrape(name, sites.ScrapeOptions{})
			if err != nil {
				o.opts.Logger.Error("cannot scrape as scheduled", "site", name, "err", err)
				return nil
			}
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
	pool := proxies.NewPool(proxies.PoolConfig{Redis: client.Redis(), Logger: logger})
	defer pool.Close()
	registry, err := LoadSites(cfg)
	if err != nil {
		logger.Warn("the dashboard shows the sites that have jobs only", "err", err)
	}
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
	r.Add(health.Redis(client.Ping, cfg.Redis.PingTimeout))
	r.Add(health.Memory(health.MemoryInfo(client)))
	r.Add(health.Workers(client.Workers, cfg.Workers.PingTimeout))
	if cfg.Proxies.HasSources() {
		r.Add(health.Proxies(pool.Usable, cfg.Proxies.MinUsable))
	}
	return r
}
