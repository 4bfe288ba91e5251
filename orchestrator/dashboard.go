package orchestrator

import (
	"context"
	"log/slog"

	"github.com/prometheus/client_golang/prometheus"

	"muster/orchestrator/api"
	"muster/orchestrator/config"
	"muster/orchestrator/health"
	"muster/proxies"
	"muster/sites"
	"muster/tasks"
	"muster/tasks/metrics"
)

// ServeDashboard serves the dashboard of the settings, and metrics of the fleet
// and of more, until ctx is done. Ready, if not nil, is called with its address.
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
