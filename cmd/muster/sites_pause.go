package main

import (
	"context"
	"fmt"

	"github.com/urfave/cli/v2"

	"muster/orchestrator/api/client"
)

func sitesPauseCommand(env environment) *cli.Command {
	return &cli.Command{
		Name: "pause", ArgsUsage: "SITE…",
		Usage:        "fetch no pages of sites, in all processes, until sites resume",
		Description:  "    muster sites pause books.toscrape.com",
		Flags:        []cli.Flag{serverFlag()},
		BashComplete: completeSites(env),
		Action: onAPI(env, 1, -1, func(ctx context.Context, c *cli.Context, api *client.Client) error {
			return changeSites(ctx, env, c, "paused", api.PauseSite)
		}),
	}
}

func sitesResumeCommand(env environment) *cli.Command {
	return &cli.Command{
		Name: "resume", ArgsUsage: "SITE…",
		Usage:        "fetch pages of paused sites again",
		Description:  "    muster sites resume books.toscrape.com",
		Flags:        []cli.Flag{serverFlag()},
		BashComplete: completeSites(env),
		Action: onAPI(env, 1, -1, func(ctx context.Context, c *cli.Context, api *client.Client) error {
			return changeSites(ctx, env, c, "resumed", api.ResumeSite)
		}),
	}
}

// changeSites calls a function for each site of the arguments, and prints the result.
func changeSites(ctx context.Context, env environment, c *cli.Context, done string, fn func(context.Context, string) error) error {
	for _, site := range c.Args().Slice() {
		if err := fn(ctx, site); err != nil {
			return err
		}
		fmt.Fprintf(env.stdout, "%s: %s\n", done, site)
	}
	return nil
}
