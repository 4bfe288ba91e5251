package main

import (
	"context"
	"fmt"

	"github.com/urfave/cli/v2"

	"muster/orchestrator"
)

func dashboardCommand(env environment) *cli.Command {
	settings := []settingFlag{
		{name: "listen", path: "api.listen", usage: "serve at `ADDR`; beyond loopback it needs a key"},
		{name: "read-only", path: "api.read_only", usage: "reject requests that change anything", isBool: true},
	}
	return &cli.Command{
		Name:  "dashboard",
		Usage: "serve the HTTP interface and the web pages, until interrupted",
		Description: `Serves what muster start serves, beside a fleet that runs elsewhere: jobs,
pipelines, agents and sites as JSON, described at /openapi.json, and the pages
below /ui/. Metrics for Prometheus are under /metrics; /ready says whether
requests can be served. The queues of asynq are under /asynqmon/: they show
wake-tasks, not the tasks of workflows; for those see muster inspect.`,
		Flags: flagsOf(settings...),
		Action: server(withClient(env, 0, 0, func(ctx context.Context, _ *cli.Context, client fleet) error {
			outliveReaders()
			return orchestrator.ServeDashboard(ctx, client.cfg, client.Client, newLogger(env, env.stderr, client.cfg.Log),
				env.watch(client.loaded, env.stderr),
				func(url string) { fmt.Fprintf(env.stderr, "dashboard: %s\n", url) })
		}, settings...)),
	}
}
