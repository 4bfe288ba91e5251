package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/urfave/cli/v2"

	"muster/orchestrator"
	"muster/orchestrator/monitor"
	"muster/sites"
)

func jobsRetryCommand(env environment) *cli.Command {
	return &cli.Command{
		Name: "retry", Usage: "fetch the pages that a scrape did not, and add their records to its files", ArgsUsage: "JOB",
		Description: `Sends the job to the running workers and prints its id, or with --wait waits
until it has ended. Where no workers run it starts them, and waits.`,
		Flags: append(flagsOf(workerSettings...),
			&cli.BoolFlag{Name: "wait", Usage: "wait for the end and print the report"},
			progressFlag(), jsonFlag()),
		Action: func(c *cli.Context) error {
			return withJobs(env, c, 1, 1, func(ctx context.Context, o *orchestrator.Orchestrator, display *monitor.Display) error {
				return retryJob(ctx, env, c, o, display)
			}, workerSettings...)
		},
	}
}

// retryJob resumes a job: on the workers that run elsewhere, or else in this process.
func retryJob(ctx context.Context, env environment, c *cli.Context, o *orchestrator.Orchestrator, display *monitor.Display) error {
	id := c.Args().First()
	if err := o.Sites.Resumable(ctx, id); errors.Is(err, sites.ErrNothingLeft) {
		fmt.Fprintln(env.stderr, "muster:", err)
		if c.Bool("json") {
			return printJSON(env.stdout, map[string]string{"job": ""})
		}
		return nil
	}
	old, err := o.Sites.Job(ctx, id)
	if err != nil {
		return noJob(err)
	}
	others, err := o.Workers.Elsewhere(ctx)
	if err != nil {
		return err
	}
	if others && !c.Bool("wait") {
		return sendRetry(ctx, env, c, o, id)
	}
	scraped, err := o.Scraper.Scrape(ctx, old.Site, orchestrator.ScrapeOptions{Resume: id})
	display.Close()
	if scraped.JobID == "" || ctx.Err() != nil {
		return err
	}
	j, jobErr := o.Sites.Job(ctx, scraped.JobID)
	switch {
	case jobErr != nil:
		return errors.Join(err, jobErr)
	case c.Bool("json"):
		return errors.Join(err, printJSON(env.stdout, j))
	}
	return errors.Join(err, printJob(env, j))
}

// sendRetry resumes a job on the workers that run elsewhere, and prints the id of its new job.
func sendRetry(ctx context.Context, env environment, c *cli.Context, o *orchestrator.Orchestrator, old string) error {
	id, err := o.Scraper.Resume(ctx, old)
	if err != nil {
		return err
	}
	if c.Bool("json") {
		return printJSON(env.stdout, map[string]string{"job": id})
	}
	fmt.Fprintln(env.stdout, id)
	return nil
}
