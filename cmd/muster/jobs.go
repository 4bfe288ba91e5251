package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"muster/orchestrator/api/client"
)

func jobsCommand(env environment) *cli.Command {
	return &cli.Command{
		Name:  "jobs",
		Usage: "create, list, watch and cancel jobs of pipelines",
		Description: `The commands call the API of the orchestrator of the data directory, or of --server.
If no orchestrator is running, they start its Redis for the duration of the command.

    muster jobs start --prompt 'check the contract' --document contract.pdf
    muster jobs list --status pending
    muster jobs status JOB --wait

Exit codes: 0 done, 1 failed or no such job, 2 wrong usage.`,
		Subcommands: []*cli.Command{
			jobsStartCommand(env),
			jobsListCommand(env),
			jobsStatusCommand(env),
			jobsItemsCommand(env),
			jobsDecideCommand(env),
			jobsEventsCommand(env),
			jobsRetryCommand(env),
			jobsCancelCommand(env),
		},
	}
}

// jobScope is an apiScope with functions for jobs.
type jobScope struct{ apiScope }

// onJobs is the action of a command on jobs, with least to most arguments; -1 means any number.
func onJobs(env environment, least, most int, fn func(context.Context, *cli.Context, jobScope) error) cli.ActionFunc {
	return onScope(env, least, most, func(ctx context.Context, c *cli.Context, s apiScope) error {
		return fn(ctx, c, jobScope{s})
	})
}

// onJob is the action of a command on one job, which is its argument or the value of --job-id.
func onJob(env environment, fn func(context.Context, *cli.Context, jobScope, client.Job) error) cli.ActionFunc {
	return func(c *cli.Context) error {
		id, least := c.String("job-id"), 0
		if id == "" {
			id, least = c.Args().First(), 1
		}
		return onJobs(env, least, least, func(ctx context.Context, c *cli.Context, s jobScope) error {
			j, err := s.find(ctx, id)
			if err != nil {
				return err
			}
			return fn(ctx, c, s, j)
		})(c)
	}
}

// jobIDFlag is another way to name the job of a command.
func jobIDFlag() cli.Flag {
	return &cli.StringFlag{Name: "job-id", Usage: "the `JOB`", Hidden: true}
}

// find returns a job.
func (s jobScope) find(ctx context.Context, id string) (client.Job, error) {
	j, err := client.GetJob.Call(ctx, s.api, client.JobPath{ID: id})
	return j, noJobID(id, err)
}

// noJobID is the error for an unknown job id; it names the command that lists ids.
func noJobID(id string, err error) error {
	p, ok := errors.AsType[*client.Problem](err)
	if ok && (p.Code == "job_not_found" || slices.ContainsFunc(p.Errors, func(f client.ProblemField) bool { return f.Location == "path.id" })) {
		list := "muster jobs list"
		if strings.HasPrefix(id, "scrape_") {
			list = "muster scrapes list"
		}
		return fmt.Errorf("job %s: no such job; see %s", cell(id, 110), list)
	}
	return err
}
