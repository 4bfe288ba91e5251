package main

import (
	"errors"
	"fmt"

	"github.com/urfave/cli/v2"

	"muster/orchestrator"
	"muster/orchestrator/health"
	"muster/proxies"
)

func healthCommand(env environment) *cli.Command {
	return &cli.Command{
		Name:  "health",
		Usage: "ask Redis, the workers and the pool how they are; exit 1 unless all are well",
		Flags: []cli.Flag{jsonFlag()},
		Action: func(c *cli.Context) error {
			if err := arguments(c, 0, 0); err != nil {
				return err
			}
			loaded, err := loadConfig(env, c)
			if err != nil {
				return err
			}
			client, err := orchestrator.Connect(c.Context, loaded.Config)
			if err != nil {
				return err
			}
			defer client.Close()
			pool := proxies.NewPool(proxies.PoolConfig{Redis: client.Redis()})
			defer pool.Close()
			report := orchestrator.Health(loaded.Config, client, pool).Run(c.Context)
			if c.Bool("json") {
				if err := printJSON(env.stdout, report); err != nil {
					return err
				}
			} else {
				t := newTable(env.stdout, "PART", "STATUS", "TIME", "")
				for _, r := range report.Checks {
					text := r.Detail
					if r.Error != "" {
						text = r.Error
					}
					t.row(r.Name, string(r.Status), fmt.Sprintf("%d ms", r.Millis), text)
				}
				if err := t.flush(); err != nil {
					return err
				}
			}
			if report.Status == health.Failed {
				return errors.New("not healthy")
			}
			return nil
		},
	}
}

func dashboardCommand(env environment) *cli.Command {
	settings := []settingFlag{
		{name: "listen", path: "dashboard.listen", usage: "serve at `ADDR`; beyond loopback it needs dashboard.keys"},
		{name: "read-only", path: "dashboard.read_only", usage: "--read-only=false lets tasks be run, archived and deleted", isBool: true},
	}
	return &cli.Command{
		Name:  "dashboard",
		Usage: "serve the web pages of the queues, until interrupted",
		Flags: flagsOf(settings...),
		Action: func(c *cli.Context) error {
			if err := arguments(c, 0, 0); err != nil {
				return err
			}
			loaded, err := loadConfig(env, c, settings...)
			if err != nil {
				return err
			}
			client, err := orchestrator.Connect(c.Context, loaded.Config)
			if err != nil {
				return err
			}
			defer client.Close()
			return orchestrator.ServeDashboard(c.Context, loaded.Config, client, newLogger(env, env.stderr, loaded.Log),
				func(url string) { fmt.Fprintf(env.stderr, "dashboard: %s\n", url) })
		},
	}
}
