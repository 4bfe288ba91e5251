package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/urfave/cli/v2"

	"muster/jobs"
	"muster/orchestrator"
	"muster/orchestrator/api/client"
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
			jobIDFlag(), serverFlag(), progressFlag(), jsonFlag()),
		Action: onJob(env, func(ctx context.Context, c *cli.Context, s jobScope, j client.Job) error {
			switch j.Kind {
			case jobs.KindPipeline:
				return s.retry(ctx, c, j)
			case jobs.KindScrape:
				return s.retryScrape(ctx, c, j)
			}
			return fmt.Errorf("job %s is a refresh of the proxies: start another with muster proxies refresh", j.ID)
		}, workerSettings...),
	}
}

// nothingLeft prints why a job is not retried.
func (s jobScope) nothingLeft(c *cli.Context, j client.Job, why any) error {
	fmt.Fprintln(s.env.stderr, "muster:", why)
	if c.Bool("json") {
		return printJSON(s.env.stdout, client.RetriedJob{JobID: j.ID})
	}
	return nil
}

// retry gives failed items of a job new attempts, or creates its next version.
func (s jobScope) retry(ctx context.Context, c *cli.Context, j client.Job) error {
	if c.Bool("again") && j.Status.Terminal() {
		next, err := s.api.RerunJob(ctx, j.ID)
		if err != nil {
			return noJobID(j.ID, err)
		}
		if !c.Bool("json") {
			fmt.Fprintf(s.env.stdout, "Created job: %s\nVersion of: %s\n", next.ID, j.ID)
		}
		return s.retriedAs(ctx, c, next, 0)
	}
	r, err := s.api.RetryJob(ctx, j.ID, c.StringSlice("item")...)
	if hasCode(err, "job_ended") {
		return fmt.Errorf("retry job %s: %w: muster jobs retry %s --again", j.ID, err, j.ID)
	}
	if err != nil {
		return noJobID(j.ID, err)
	}
	if r.Retried == 0 && j.Status.Terminal() {
		return s.nothingLeft(c, j, fmt.Sprintf("job %s has no failed items; create its next version with muster jobs retry %s --again", j.ID, j.ID))
	}
	if !c.Bool("json") && !c.Bool("wait") {
		fmt.Fprintf(s.env.stdout, "%d failed items of job %s run again\n", r.Retried, j.ID)
	}
	return s.retriedAs(ctx, c, j, r.Retried)
}

// retriedAs waits for a retried job with --wait, and prints JSON.
func (s jobScope) retriedAs(ctx context.Context, c *cli.Context, j client.Job, n int) error {
	var failed error
	if c.Bool("wait") {
		ended, err := s.work(ctx, j)
		if err != nil {
			return err
		}
		failed = notCompleted(ended)
		if !c.Bool("json") {
			fmt.Fprintf(s.env.stdout, "Job completed with status: %s\n", ended.Status)
		}
	}
	if c.Bool("json") {
		return errors.Join(printJSON(s.env.stdout, client.RetriedJob{JobID: j.ID, Retried: n}), failed)
	}
	return failed
}

// retryScrape resumes a scrape: on the workers of other processes, or else in this process.
func (s jobScope) retryScrape(ctx context.Context, c *cli.Context, j client.Job) error {
	if s.own != nil {
		others, err := s.own.Workers.Elsewhere(ctx)
		if err != nil {
			return err
		}
		if !others {
			return s.scrapeAgain(ctx, c, j)
		}
	}
	started, err := s.api.ResumeScrape(ctx, j.ID)
	if hasCode(err, "scrape_complete") {
		return s.nothingLeft(c, j, err)
	}
	if err != nil {
		return err
	}
	if !c.Bool("wait") {
		return showDone(s.env, c, started, nil, "%s", started.JobID)
	}
	next, err := s.find(ctx, started.JobID)
	if err != nil {
		return err
	}
	ended, err := s.wait(ctx, next)
	if err != nil {
		return s.interrupted(ctx, err, next.ID)
	}
	return errors.Join(s.showJob(ended, c.Bool("json")), notCompleted(ended))
}

// scrapeAgain resumes a scrape with workers of this process.
func (s jobScope) scrapeAgain(ctx context.Context, c *cli.Context, j client.Job) error {
	if err := s.own.Sites.Resumable(ctx, j.ID); errors.Is(err, sites.ErrNothingLeft) {
		return s.nothingLeft(c, j, err)
	}
	scraped, err := s.own.Scraper.Scrape(ctx, j.Name, orchestrator.ScrapeOptions{Resume: j.ID})
	s.display.Close()
	if ctx.Err() != nil {
		return s.interrupted(ctx, err, scraped.JobID)
	}
	if scraped.JobID == "" {
		return err
	}
	next, jobErr := s.find(ctx, scraped.JobID)
	if jobErr != nil {
		return errors.Join(err, jobErr)
	}
	return errors.Join(err, s.showJob(next, c.Bool("json")))
}
