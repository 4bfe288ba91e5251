package main

import (
	"context"
	"fmt"

	"github.com/urfave/cli/v2"

	"muster/orchestrator"
)

func dashboardCommand(env environment) *cli.Command {
	settings := []settingFlag{
		{name: "listen", path: "dashboard.listen", usage: "serve at `ADDR`; beyond loopback it needs dashboard.keys"},
		{name: "read-only", path: "dashboard.read_only", usage: "--read-only=false lets queues be paused, and asynq's tasks be run, archived and deleted", isBool: true},
	}
	return &cli.Command{
		Name:  "dashboard",
		Usage: "serve the web pages of sites and queues, until interrupted",
		Description: `Shows how each site does, its jobs and their reports; the same as JSON under
/api/sites and /api/jobs. Metrics for Prometheus are under /metrics, and what
muster health says under /health. The queues of asynq are under /asynqmon/:
they show wake-tasks, not the tasks of workflows; for those see muster inspect.`,
		Flags: flagsOf(settings...),
		Action: withClient(env, 0, 0, func(ctx context.Context, _ *cli.Context, client fleet) error {
			outliveReaders()
			return orchestrator.ServeDashboard(ctx, client.cfg, client.Client, newLogger(env, env.stderr, client.cfg.Log),
				func(url string) { fmt.Fprintf(env.stderr, "dashboard: %s\n", url) })
		}, settings...),
	}
}
