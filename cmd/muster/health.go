package main

import (
	"context"
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
		Usage: "check Redis, the workers and the pool; exit 1 unless all are healthy",
		Flags: []cli.Flag{jsonFlag()},
		Action: withClient(env, 0, 0, func(ctx context.Context, c *cli.Context, client fleet) error {
			pool := proxies.NewPool(proxies.PoolConfig{Redis: client.Redis()})
			defer pool.Close()
			report := orchestrator.Health(client.cfg, client.Client, pool).Run(ctx)
			if err := printHealth(env, report, c.Bool("json")); err != nil {
				return err
			}
			if report.Status == health.Failed {
				return errors.New("not healthy")
			}
			return nil
		}),
	}
}

func printHealth(env environment, report health.Report, asJSON bool) error {
	if asJSON {
		return printJSON(env.stdout, report)
	}
	t := newTable(env.stdout, "PART", "STATUS", "TIME", "")
	for _, r := range report.Checks {
		text := r.Detail
		if r.Error != "" {
			text = r.Error
		}
		t.row(r.Name, string(r.Status), fmt.Sprintf("%d ms", r.Millis), text)
	}
	return t.flush()
}
