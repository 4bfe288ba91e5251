package main

import (
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
			list(env, &cli.Command{Name: "list", Usage: "list the breakers that are not closed",
				Description: "TRIALS and BLOCKED count the requests since it opened that were allowed and not."},
				client.ListBreakers, "All breakers are closed", "KEY "+breakerColumns, breakerRow),
			act(env, &cli.Command{
				Name: "reset", Usage: "close breakers and reset their failure counts", ArgsUsage: "[NAME…]", Before: namedOr("all"),
				Description: `A NAME is a KEY, or the site, host or id in it. Blocked work is
retried within two minutes. If requests still fail, the breaker opens again.`,
			}, client.ResetBreakers, func(_ client.With[client.BreakerReset], closed client.Page[string]) string {
				return fmt.Sprintf("%d closed", len(closed.Data))
			}),
		},
	}
}

const breakerColumns = "STATE OPEN_SINCE NEXT_TRIAL TRIALS BLOCKED LAST_FAILURE"

func breakerRow(s limit.BreakerState) []any {
	next := "now"
	if left := time.Until(s.Until); left > 0 {
		next = "in " + left.Round(time.Second).String()
	}
	return []any{cell(s.Key, 60), s.State, s.Since, next, s.Allowed, s.Blocked, cell(s.LastBlock, 40)}
}
