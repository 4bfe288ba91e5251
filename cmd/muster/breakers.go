package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/urfave/cli/v2"

	"muster/internal/limit"
	"muster/orchestrator/api/client"
)

func breakersCommand(env environment) *cli.Command {
	return &cli.Command{
		Name:  "breakers",
		Usage: "list and close the circuit breakers of sites, hosts and agents",
		Description: `A breaker opens when requests keep failing: it blocks them for a while, then allows
a few trials, and closes when one succeeds. Its KEY is site@host for a site,
host:NAME for a host of the work queue, agent:ID for an agent with a URL.`,
		Subcommands: []*cli.Command{
			{
				Name:        "list",
				Usage:       "list the breakers that are not closed",
				Description: "TRIALS and BLOCKED count the requests since it opened that were allowed and not.",
				Flags:       []cli.Flag{serverFlag(), jsonFlag()},
				Action:      listAll(env, client.ListBreakers, "All breakers are closed", []string{"KEY", "STATE", "OPEN SINCE", "NEXT TRIAL", "TRIALS", "BLOCKED", "LAST FAILURE"}, breakerRow),
			},
			{
				Name:      "reset",
				Usage:     "close breakers and reset their failure counts",
				ArgsUsage: "[NAME…]",
				Description: `A NAME is a KEY, or the site, host or id in it. Blocked work is
retried within two minutes. If requests still fail, the breaker opens again.`,
				Flags: []cli.Flag{&cli.BoolFlag{Name: "all", Usage: "close all"}, serverFlag(), jsonFlag()},
				Action: func(c *cli.Context) error {
					if c.Bool("all") == (c.NArg() > 0) {
						return usageError{errors.New("breakers reset: name breakers, or close all with --all; see muster breakers list")}
					}
					return onAPI(env, 0, -1, func(ctx context.Context, c *cli.Context, api *client.Client) error {
						closed, err := client.ResetBreakers.Call(ctx, api, client.With[client.BreakerReset]{Body: client.BreakerReset{Names: c.Args().Slice(), All: c.Bool("all")}})
						return showDone(env, c, closed, err, "%d closed", len(closed.Data))
					})(c)
				},
			},
		},
	}
}

func breakerRow(s limit.BreakerState) []string {
	next := "now"
	if left := time.Until(s.Until); left > 0 {
		next = "in " + left.Round(time.Second).String()
	}
	return []string{cell(s.Key, 60), s.State, age(s.Since), next, fmt.Sprint(s.Allowed), fmt.Sprint(s.Blocked), cell(orDash(s.LastBlock), 40)}
}
