package main

import (
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

// jobCommand makes c a command on one job, which is its argument or the value of --job-id.
func jobCommand(env environment, c *cli.Command, fn func(scope, client.Job) error) *cli.Command {
	c.Flags = append(c.Flags, jobIDFlag())
	return apiCommand(env, c, func(s scope, in client.JobPath) error {
		j, err := s.find(in.ID)
		if err != nil {
			return err
		}
		return fn(s, j)
	})
}

// jobIDFlag is another way to name the job of a command.
func jobIDFlag() cli.Flag {
	return &cli.StringFlag{Name: "job-id", Usage: "the `JOB`", Hidden: true}
}

// find returns a job.
func (s scope) find(id string) (client.Job, error) {
	j, err := client.GetJob.Call(s.ctx, s.api, client.JobPath{ID: id})
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
