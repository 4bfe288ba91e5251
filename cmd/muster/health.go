package main

import (
	"cmp"
	"errors"
	"fmt"

	"github.com/urfave/cli/v2"

	"muster/orchestrator/api/client"
	"muster/orchestrator/health"
)

func healthCommand(env environment) *cli.Command {
	c := apiCommand(env, &cli.Command{
		Name:  "health",
		Usage: "check Redis, workers, agents and the proxy pool; exit 1 if one has failed",
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "url", Usage: "only check that `URL` returns 200, as in http://localhost:8000/health"}, jsonFlag(),
		},
	}, func(s scope, _ client.None) error {
		report, err := client.GetHealthReport.Call(s.ctx, s.api, client.None{})
		if err != nil {
			return err
		}
		if err := printHealth(env, report, s.Bool("json")); err != nil {
			return err
		}
		if report.Status == health.Failed {
			return errors.New("not healthy")
		}
		return nil
	})
	system := c.Action
	c.Action = func(c *cli.Context) error {
		if c.IsSet("url") {
			return probeURL(c.Context, c.String("url"))
		}
		return system(c)
	}
	return c
}

func printHealth(env environment, report health.Report, asJSON bool) error {
	if asJSON {
		return printJSON(env.stdout, report)
	}
	t := newTable(env.stdout, "PART STATUS TIME _")
	for _, r := range report.Checks {
		t.row(r.Name, r.Status, fmt.Sprintf("%d ms", r.Millis), cmp.Or(r.Error, r.Detail))
	}
	return t.flush()
}
