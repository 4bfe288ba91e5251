package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/urfave/cli/v2"

	"muster/orchestrator"
	"muster/orchestrator/monitor"
	"muster/tasks/limit"
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
				Flags:       []cli.Flag{progressFlag(), watchFlag(), jsonFlag()},
				Action:      func(c *cli.Context) error { return listBreakers(env, c) },
			},
			{
				Name:      "reset",
				Usage:     "close breakers and forget their failures",
				ArgsUsage: "[NAME…]",
				Description: `A NAME is a KEY, or the site, host or id in it. What waits is tried when its wait
ends, within two minutes. If requests still fail, the breaker opens again.`,
				Flags:  []cli.Flag{&cli.BoolFlag{Name: "all", Usage: "close all"}, progressFlag(), jsonFlag()},
				Action: func(c *cli.Context) error { return resetBreakers(env, c) },
			},
		},
	}
}

func listBreakers(env environment, c *cli.Context) error {
	return withJobs(env, c, 0, 0, func(ctx context.Context, o *orchestrator.Orchestrator, _ *monitor.Display) error {
		list, err := o.Breakers.List(ctx)
		if err != nil {
			return err
		}
		if len(list) == 0 && !c.Bool("json") {
			fmt.Fprintln(env.stdout, "All breakers are closed")
			return nil
		}
		return show(env, c, list, []string{"KEY", "STATE", "OPEN SINCE", "NEXT TRIAL", "TRIALS", "BLOCKED", "LAST FAILURE"}, breakerRow)
	})
}

func breakerRow(s limit.BreakerState) []string {
	next := "now"
	if left := time.Until(s.Until); left > 0 {
		next = "in " + left.Round(time.Second).String()
	}
	return []string{cell(s.Key, 60), s.State, age(s.Since), next, fmt.Sprint(s.Allowed), fmt.Sprint(s.Blocked), cell(orDash(s.LastBlock), 40)}
}

// resetResult is the JSON output of breakers reset.
type resetResult struct {
	Reset []string `json:"reset"` // keys
}

func resetBreakers(env environment, c *cli.Context) error {
	if c.Bool("all") == (c.NArg() > 0) {
		return usageError{errors.New("breakers reset: name breakers, or close all with --all; see muster breakers list")}
	}
	return withJobs(env, c, 0, -1, func(ctx context.Context, o *orchestrator.Orchestrator, _ *monitor.Display) error {
		list, err := o.Breakers.List(ctx)
		if err != nil {
			return err
		}
		keys := []string{}
		for _, name := range c.Args().Slice() {
			found := o.Breakers.Find(list, name)
			if len(found) == 0 {
				return fmt.Errorf("no breaker %s is open; see muster breakers list", name)
			}
			keys = append(keys, found...)
		}
		for _, s := range list {
			if c.Bool("all") {
				keys = append(keys, s.Key)
			}
		}
		slices.Sort(keys)
		keys = slices.Compact(keys)
		if err := o.Breakers.Reset(ctx, keys...); err != nil {
			return err
		}
		if c.Bool("json") {
			return printJSON(env.stdout, resetResult{keys})
		}
		fmt.Fprintf(env.stdout, "%d closed\n", len(keys))
		return nil
	})
}
