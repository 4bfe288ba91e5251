package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/urfave/cli/v2"

	"muster/sites"
)

func jobsCancelCommand(env environment) *cli.Command {
	return &cli.Command{
		Name: "cancel", ArgsUsage: "JOB-OR-SITE…",
		Usage: "end scrapes, by job or by site; their records are kept, and jobs retry fetches the other pages",
		Flags: []cli.Flag{progressFlag(), jsonFlag()},
		Action: jobsAction(env, 1, -1, func(ctx context.Context, c *cli.Context, s *sites.Service) error {
			var errs []error
			for _, name := range c.Args().Slice() {
				errs = append(errs, cancelJob(ctx, env, s, name))
			}
			return errors.Join(errs...)
		}),
	}
}

// cancelJob ends the job of this id, or the running one of the site of this name.
func cancelJob(ctx context.Context, env environment, s *sites.Service, name string) error {
	id, err := runningJob(ctx, s, name)
	if err != nil {
		return err
	}
	if j, err := s.Job(ctx, id); err == nil && j.Over() {
		fmt.Fprintf(env.stdout, "ended already: %s, %s\n", id, j.Status)
		return nil
	}
	if err := s.Cancel(ctx, id); err != nil {
		return noJob(err)
	}
	fmt.Fprintf(env.stdout, "canceled: %s\n", id)
	return nil
}

// runningJob is the id of the running job of the site with this name, or else name, as the id of a job.
func runningJob(ctx context.Context, s *sites.Service, name string) (string, error) {
	jobs, err := s.Jobs(ctx, name, 1)
	if err != nil || len(jobs) == 0 {
		return name, err
	}
	if jobs[0].Over() {
		return "", usageError{fmt.Errorf("no scrape of %s is running; the last was %s, %s", name, jobs[0].ID, jobs[0].Status)}
	}
	return jobs[0].ID, nil
}
