package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/urfave/cli/v2"

	"muster/jobs"
	"muster/orchestrator"
	"muster/sites"
)

func jobsRetryCommand(env environment) *cli.Command {
	return &cli.Command{
		Name: "retry", Usage: "retry failed items or pages of a job", ArgsUsage: "JOB",
		Description: `Failed items return to their stages, and stages that failed are retried. A
finished pipeline job is reopened; its finished items stay. --again creates its
next version instead, which repeats all items.

A finished scrape fetches its failed and unfinished pages, and appends their
records to its files. Running workers do the work; --wait waits for the result.
If no worker is running, the command starts one and waits.

    muster jobs retry JOB
    muster jobs retry JOB --item R-12 --item R-13`,
		Flags: append(flagsOf(workerSettings...),
			&cli.StringSliceFlag{Name: "item", Usage: "only the item `KEY`; may be repeated"},
			&cli.BoolFlag{Name: "again", Usage: "create the next version of a finished pipeline job"},
			&cli.BoolFlag{Name: "wait", Usage: "wait until the job has finished; for a scrape, print the report"},
			jobIDFlag(), progressFlag(), jsonFlag()),
		Action: onJob(env, func(ctx context.Context, c *cli.Context, s jobScope, j jobs.Job) error {
			switch j.Kind {
			case jobs.KindPipeline:
				return s.retry(ctx, c, j)
			case jobs.KindScrape:
				return s.retryScrape(ctx, c, j.ID)
			}
			return fmt.Errorf("job %s is a refresh of the proxies: start another with muster proxies refresh", j.ID)
		}, workerSettings...),
	}
}

// retryResult is the JSON result of jobs retry.
type retryResult struct {
	Job   string `json:"job"`   // its id, or the id of the job that continues it; empty if nothing is left to do
	Items int    `json:"items"` // that went back to their stages
}

// retry gives failed items of a job new attempts, or creates its next version.
func (s jobScope) retry(ctx context.Context, c *cli.Context, j jobs.Job) error {
	if c.Bool("again") && j.Status.Terminal() {
		next, err := s.jobs.Again(ctx, j.ID)
		if err != nil {
			return noJobID(j.ID, err)
		}
		if !c.Bool("json") {
			fmt.Fprintf(s.env.stdout, "Created job: %s\nVersion of: %s\n", next.ID, j.ID)
		}
		return s.retriedAs(ctx, c, next, 0)
	}
	n, err := s.jobs.Retry(ctx, j.ID, c.StringSlice("item")...)
	if errors.Is(err, jobs.ErrTerminal) {
		return fmt.Errorf("retry job %s: %w: muster jobs retry %s --again", j.ID, err, j.ID)
	}
	if err != nil {
		return noJobID(j.ID, err)
	}
	if n == 0 && j.Status.Terminal() {
		fmt.Fprintf(s.env.stderr, "muster: job %s has no failed items; create its next version with muster jobs retry %s --again\n", j.ID, j.ID)
		if c.Bool("json") {
			return printJSON(s.env.stdout, retryResult{})
		}
		return nil
	}
	if !c.Bool("json") && !c.Bool("wait") {
		fmt.Fprintf(s.env.stdout, "%d failed items of job %s run again\n", n, j.ID)
	}
	return s.retriedAs(ctx, c, j, n)
}

// retriedAs waits for a job that was retried if that is asked for, and prints JSON.
func (s jobScope) retriedAs(ctx context.Context, c *cli.Context, j jobs.Job, n int) error {
	var failed error
	if c.Bool("wait") {
		stop, err := s.serve(ctx)
		if err != nil {
			return err
		}
		ended, err := s.wait(ctx, []jobs.Job{j})
		if err = errors.Join(err, stop()); err != nil {
			return withJobState(ctx, s.system, err, []string{j.ID}, "muster jobs retry "+j.ID+" --wait")
		}
		failed = notCompleted(ended)
		if !c.Bool("json") {
			fmt.Fprintf(s.env.stdout, "Job completed with status: %s\n", ended[0].Status)
		}
	}
	if c.Bool("json") {
		return errors.Join(printJSON(s.env.stdout, retryResult{j.ID, n}), failed)
	}
	return failed
}

// retryScrape resumes a scrape: on the workers that run elsewhere, or else in this process.
func (s jobScope) retryScrape(ctx context.Context, c *cli.Context, id string) error {
	env, o := s.env, s.system
	if err := o.Sites.Resumable(ctx, id); errors.Is(err, sites.ErrNothingLeft) {
		fmt.Fprintln(env.stderr, "muster:", err)
		if c.Bool("json") {
			return printJSON(env.stdout, retryResult{})
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
	s.display.Close()
	if ctx.Err() != nil {
		var ids []string
		if scraped.JobID != "" {
			ids = []string{scraped.JobID}
		}
		return withJobState(ctx, o, err, ids, "muster jobs retry "+id+" --wait")
	}
	if scraped.JobID == "" {
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
		return printJSON(env.stdout, retryResult{Job: id})
	}
	fmt.Fprintln(env.stdout, id)
	return nil
}
