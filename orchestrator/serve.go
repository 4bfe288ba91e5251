package orchestrator

import (
	"context"
	"errors"

	"golang.org/x/sync/errgroup"

	"muster/orchestrator/api"
	"muster/orchestrator/config"
	"muster/orchestrator/pipeline"
)

// Serve sends the scheduled jobs, and serves the HTTP interface if it is enabled,
// until ctx is done.
func (o *Orchestrator) Serve(ctx context.Context) error {
	if err := o.Workers.Start(ctx); err != nil {
		return err
	}
	schedule, err := o.schedule(o.cfg, o.Sites.Registry())
	if err != nil {
		return err
	}
	intake, running := errgroup.WithContext(ctx)
	intake.Go(func() error { return o.runSchedule(running, schedule) })
	if o.cfg.API.Enabled {
		intake.Go(func() error {
			err := o.serveAPI(running, nil)
			if errors.Is(err, api.ErrTaken) && !o.opts.NeedAPI {
				o.opts.Logger.WarnContext(ctx, "the HTTP interface is not served; set api.listen to another address, or api.enabled to false", "err", err)
				return nil
			}
			return err
		})
	}
	intake.Go(func() error { o.Proxies.Keep(running); return nil })
	intake.Go(func() error { return o.Jobs.Run(running) })
	intake.Go(func() error { return o.Agents.Run(running) })
	intake.Go(func() error { return o.Webhooks.Run(running) })
	o.opts.Logger.InfoContext(ctx, "running; Ctrl-C stops", "redis", o.redis.Mode(), "data", o.cfg.DataDir)
	if err := intake.Wait(); err != nil {
		return err
	}
	return context.Cause(ctx)
}

// Reload applies from cfg, while Serve runs, the site definitions, the pipelines, sites.schedule,
// proxies.refresh_every, proxies.recheck_every and, unless workers are processes
// of their own, workers.concurrency. The rest of cfg needs a restart. On an error
// nothing changes.
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
	pipelines, err := pipeline.Load(o.cfg.Pipelines())
	if err != nil {
		return err
	}
	o.Sites.Registry().Replace(registry)
	o.Pipelines.Replace(pipelines)
	o.logBroken()
	select {
	case <-o.schedules: // one that Serve has not taken yet
	default:
	}
	o.schedules <- schedule
	log := o.opts.Logger.With("sites", len(registry.Names()), "sites.schedule", again.Sites.Schedule,
		"proxies.refresh_every", again.Proxies.RefreshEvery, "proxies.recheck_every", again.Proxies.RecheckEvery)
	if o.Workers.setConcurrency(cfg.Workers.Concurrency) {
		log = log.With("workers.concurrency", cfg.Workers.Concurrency)
	}
	log.Info("reloaded; other settings take a new start")
	return nil
}
