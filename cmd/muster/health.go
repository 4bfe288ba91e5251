package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/urfave/cli/v2"

	"muster/orchestrator/api/client"
	"muster/orchestrator/health"
)

func healthCommand(env environment) *cli.Command {
	system := onAPI(env, 0, 0, func(ctx context.Context, c *cli.Context, api *client.Client) error {
		report, err := client.GetHealthReport.Call(ctx, api, client.None{})
		if err != nil {
			return err
		}
		if err := printHealth(env, report, c.Bool("json")); err != nil {
			return err
		}
		if report.Status == health.Failed {
			return errors.New("not healthy")
		}
		return nil
	})
	return &cli.Command{
		Name:  "health",
		Usage: "check Redis, workers, agents and the proxy pool; exit 1 if one has failed",
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "url", Usage: "only check that `URL` returns 200, as in http://localhost:8000/health"},
			serverFlag(), jsonFlag(),
		},
		Action: func(c *cli.Context) error {
			if !c.IsSet("url") {
				return system(c)
			}
			if err := arguments(c, 0, 0); err != nil {
				return err
			}
			return probeURL(c.Context, c.String("url"))
		},
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
