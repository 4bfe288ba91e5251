package main

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/urfave/cli/v2"

	"muster/jobs"
	"muster/sites"
)

func jobsPauseCommand(env environment) *cli.Command {
	return &cli.Command{
		Name: "pause", ArgsUsage: "[JOB-OR-SITE…]",
		Usage: "pause jobs of pipelines or sites, in all processes, until jobs resume; without arguments, list the paused sites",
		Description: `No agent gets work of a paused job, and no pages of a paused site are fetched.
Work that has begun may end.`,
		Flags:        []cli.Flag{progressFlag(), jsonFlag()},
		BashComplete: completeSites(env),
		Action: onJobs(env, 0, -1, func(ctx context.Context, c *cli.Context, s jobScope) error {
			if c.NArg() > 0 {
				return s.eachJobOrSite(ctx, c, "paused", s.jobs.Pause, s.system.Sites.PauseSite)
			}
			paused, err := s.system.Sites.PausedSites(ctx)
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
		Name: "resume", Usage: "resume paused jobs and sites", ArgsUsage: "JOB-OR-SITE…",
		Flags:        []cli.Flag{progressFlag(), jsonFlag()},
		BashComplete: completeSites(env),
		Action: onJobs(env, 1, -1, func(ctx context.Context, c *cli.Context, s jobScope) error {
			return s.eachJobOrSite(ctx, c, "resumed", s.jobs.Resume, s.system.Sites.ResumeSite)
		}),
	}
}

// eachJobOrSite calls a function for each argument, if all exist, and prints the result.
func (s jobScope) eachJobOrSite(ctx context.Context, c *cli.Context, done string, job func(context.Context, string) (jobs.Job, error), site func(context.Context, string) error) error {
	isJob := map[string]bool{}
	for _, name := range c.Args().Slice() {
		j, err := s.jobs.Get(ctx, name)
		if isJob[name] = err == nil && j.Kind == jobs.KindPipeline; isJob[name] {
			continue
		}
		err = s.system.Sites.Site(ctx, name)
		if errors.As(err, new(*sites.UnknownError)) {
			err = usageError{err}
		}
		if err != nil {
			return err
		}
	}
	for _, name := range c.Args().Slice() {
		var err error
		if isJob[name] {
			_, err = job(ctx, name)
		} else {
			err = site(ctx, name)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		if !c.Bool("json") {
			fmt.Fprintf(s.env.stdout, "%s: %s\n", done, name)
		}
	}
	if c.Bool("json") {
		return printJSON(s.env.stdout, c.Args().Slice())
	}
	return nil
}
