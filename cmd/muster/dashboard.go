package main

import (
	"fmt"

	"github.com/urfave/cli/v2"

	"muster/orchestrator"
)

var listenSetting = settingFlag{"listen", "api.listen", "serve the HTTP API at `ADDR`; beyond loopback it needs a key"}

func dashboardCommand(env environment) *cli.Command {
	return &cli.Command{
		Name:  "dashboard",
		Usage: "serve the HTTP interface and the web pages, until interrupted",
		Description: `Serves the HTTP interface of muster start for workers that run elsewhere: jobs,
pipelines, agents and sites as JSON, described at /openapi.json, and the pages
below /ui/. Prometheus metrics are at /metrics; /ready reports whether requests
can be served. /asynqmon/ shows the tasks of asynq's own clients; for tasks of
workflows see muster workflows.`,
		Flags: flagsOf(listenSetting),
		Action: server(func(c *cli.Context) error {
			loaded, err := loadConfig(env, c, listenSetting)
			if err != nil {
				return err
			}
			client, err := orchestrator.Connect(c.Context, loaded.Config)
			if err != nil {
				return err
			}
			defer client.Close()
			outliveReaders()
			return orchestrator.ServeDashboard(c.Context, loaded.Config, client, newLogger(env, env.stderr, loaded.Log),
				env.watch(loaded, env.stderr),
				func(url string) { fmt.Fprintf(env.stderr, "dashboard: %s\n", url) })
		}),
	}
}
