package main

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/urfave/cli/v2"

	"muster/sites"
)

func jobsPauseCommand(env environment) *cli.Command {
	return &cli.Command{
		Name: "pause", ArgsUsage: "[SITE…]",
		Usage:        "fetch no more pages of a site, in all processes, until jobs resume; without a site, list the paused ones",
		Flags:        []cli.Flag{progressFlag(), jsonFlag()},
		BashComplete: completeSites(env),
		Action: jobsAction(env, 0, -1, func(ctx context.Context, c *cli.Context, s *sites.Service) error {
			if c.NArg() > 0 {
				return eachSite(ctx, env, c, s, "paused", s.PauseSite)
			}
			paused, err := s.PausedSites(ctx)
			if err != nil {
				return err
			}
			slices.Sort(paused)
			return show(env, c, paused, []string{"PAUSED"}, func(site string) []string { return []string{site} })
		}),
	}
}

func jobsResumeCommand(env environment) *cli.Command {
	return &cli.Command{
		Name: "resume", Usage: "fetch the pages of paused sites again", ArgsUsage: "SITE…",
		Flags:        []cli.Flag{progressFlag(), jsonFlag()},
		BashComplete: completeSites(env),
		Action: jobsAction(env, 1, -1, func(ctx context.Context, c *cli.Context, s *sites.Service) error {
			return eachSite(ctx, env, c, s, "resumed", s.ResumeSite)
		}),
	}
}

// eachSite calls fn for each named site, if all exist, and prints the result.
func eachSite(ctx context.Context, env environment, c *cli.Context, s *sites.Service, done string, fn func(ctx context.Context, site string) error) error {
	for _, site := range c.Args().Slice() {
		err := s.Site(ctx, site)
		if errors.As(err, new(*sites.UnknownError)) {
			err = usageError{err}
		}
		if err != nil {
			return err
		}
	}
	for _, site := range c.Args().Slice() {
		if err := fn(ctx, site); err != nil {
			return err
		}
		if !c.Bool("json") {
			fmt.Fprintf(env.stdout, "%s: %s\n", done, site)
		}
	}
	if c.Bool("json") {
		return printJSON(env.stdout, c.Args().Slice())
	}
	return nil
}
