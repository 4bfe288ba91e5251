package orchestrator

import (
	"context"
	"errors"

	"golang.org/x/sync/errgroup"

	"muster/orchestrator/api"
)

// Serve puts the schedules of the settings, processes the queues of the setting queue.run and serves the HTTP API if it is enabled, until
// ctx is done.
func (o *Orchestrator) Serve(ctx context.Context) error {
	if err := o.Workers.Start(ctx); err != nil {
		return err
	}
	if err := o.syncSchedules(ctx); err != nil {
		return err
	}
	pools, err := o.queuePools()
	if err != nil {
		return err
	}
	intake, running := errgroup.WithContext(ctx)
	if o.cfg().API.Enabled {
		intake.Go(func() error {
			err := o.serveAPI(running, true, o.opts.Ready)
			if errors.Is(err, api.ErrTaken) && !o.opts.NeedAPI {
				o.opts.Logger.WarnContext(ctx, "the HTTP API is not available; set api.listen to another address or api.enabled to false", "err", err)
				return nil
			}
			return err
		})
	}
	for _, pool := range pools {
		intake.Go(func() error { return pool.Run(running) })
	}
	intake.Go(func() error { o.Proxies.Keep(running); return nil })
	intake.Go(func() error { o.logEvents(running); return nil })
	intake.Go(func() error { return o.Jobs.Run(running) })
	intake.Go(func() error { return o.Agents.Run(running) })
	intake.Go(func() error { return o.Webhooks.Run(running) })
	intake.Go(func() error { return o.Archive.Run(running) })
	o.opts.Logger.InfoContext(ctx, "running; Ctrl-C stops", "redis", o.redis.Mode(), "data", o.cfg().DataDir)
	if err := intake.Wait(); err != nil {
		return err
	}
	return context.Cause(ctx)
}
