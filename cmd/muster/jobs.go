package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/urfave/cli/v2"

	"muster/jobs"
	"muster/orchestrator"
	"muster/orchestrator/monitor"
	"muster/sites"
)

func jobsCommand(env environment) *cli.Command {
	return &cli.Command{
		Name:  "jobs",
		Usage: "create, list, watch and cancel jobs: pipelines, scrapes, proxy refreshes",
		Description: `The commands use the jobs of the data directory. If no orchestrator is running on
it, they start its Redis for the duration of the command.

    muster jobs start --prompt 'check the contract' --document contract.pdf
    muster jobs list --status pending
    muster jobs wait JOB

Exit codes: 0 done, 1 failed or no such job, 2 wrong usage.`,
		Subcommands: []*cli.Command{
			jobsStartCommand(env),
			jobsListCommand(env),
			jobsStatusCommand(env),
			jobsReportCommand(env),
			jobsItemsCommand(env),
			jobsDecideCommand(env),
			jobsWaitCommand(env),
			jobsEventsCommand(env),
			jobsCompareCommand(env),
			jobsRetryCommand(env),
			jobsCancelCommand(env),
			jobsHealthCommand(env),
			jobsPauseCommand(env),
			jobsResumeCommand(env),
		},
	}
}

// jobScope has the services that a command on jobs uses.
type jobScope struct {
	jobs    *jobs.Service
	system  *orchestrator.Orchestrator
	display *monitor.Display
	env     environment
}

// onJobs is the action of a command on jobs, with at least and at most so many
// arguments; -1 is any number.
func onJobs(env environment, least, most int, fn func(context.Context, *cli.Context, jobScope) error, settings ...settingFlag) cli.ActionFunc {
	return func(c *cli.Context) error {
		return withJobs(env, c, least, most, func(ctx context.Context, o *orchestrator.Orchestrator, display *monitor.Display) error {
			return fn(ctx, c, jobScope{o.Jobs, o, display, env})
		}, settings...)
	}
}

// onJob is the action of a command on one job, which is its argument or the value of
// --job-id.
func onJob(env environment, fn func(context.Context, *cli.Context, jobScope, jobs.Job) error, settings ...settingFlag) cli.ActionFunc {
	return func(c *cli.Context) error {
		id := c.String("job-id")
		least := 1
		if id != "" {
			least = 0
		}
		return withJobs(env, c, least, least, func(ctx context.Context, o *orchestrator.Orchestrator, display *monitor.Display) error {
			if id == "" {
				id = c.Args().First()
			}
			s := jobScope{o.Jobs, o, display, env}
			j, err := s.find(ctx, id)
			if err != nil {
				return err
			}
			return fn(ctx, c, s, j)
		}, settings...)
	}
}

// jobIDFlag is another way to name the job of a command.
func jobIDFlag() cli.Flag {
	return &cli.StringFlag{Name: "job-id", Usage: "the `JOB`", Hidden: true}
}

// find returns a job. A scrape that is not listed yet is listed.
func (s jobScope) find(ctx context.Context, id string) (jobs.Job, error) {
	j, err := s.jobs.Get(ctx, id)
	if !errors.Is(err, jobs.ErrNotFound) {
		return j, noJobID(id, err)
	}
	scrape, other := s.system.Sites.Job(ctx, id)
	if errors.Is(other, sites.ErrNoJob) {
		return j, noJobID(id, err)
	}
	if other != nil {
		return j, other
	}
	if err := s.jobs.Track(ctx, id, jobs.KindScrape, scrape.Site, scrape.Began); err != nil {
		return j, err
	}
	return s.jobs.Get(ctx, id)
}

// jobsAction is the action of a command on scrapes, with at least and at most so many arguments; -1 is any number.
func jobsAction(env environment, least, most int, fn func(context.Context, *cli.Context, *sites.Service) error) cli.ActionFunc {
	return func(c *cli.Context) error {
		return withJobs(env, c, least, most, func(ctx context.Context, o *orchestrator.Orchestrator, _ *monitor.Display) error {
			return fn(ctx, c, o.Sites)
		})
	}
}

// withJobs runs fn with the jobs of the data folder, whether or not an
// orchestrator runs on it. It starts no workers.
func withJobs(env environment, c *cli.Context, least, most int, fn func(context.Context, *orchestrator.Orchestrator, *monitor.Display) error, settings ...settingFlag) error {
	if err := arguments(c, least, most); err != nil {
		return err
	}
	loaded, err := loadConfig(env, c, settings...)
	if err != nil {
		return err
	}
	if _, ok := flagValue(c, "log-level"); !ok {
		loaded.Log.Level = "warn"
	}
	return withSystem(env, c, loaded, true, fn)
}

// noJob adds where to find the ids of scrapes.
func noJob(err error) error {
	if errors.Is(err, sites.ErrNoJob) {
		return fmt.Errorf("%w; see muster jobs list", err)
	}
	return err
}

// noJobID is the error for an unknown job id; it names the command that lists ids. Values that
// the service rejects are wrong usage.
func noJobID(id string, err error) error {
	if wrong, ok := errors.AsType[*jobs.FieldError](err); ok && wrong.Field == "job_id" || errors.Is(err, jobs.ErrNotFound) {
		return fmt.Errorf("job %s: %w; see muster jobs list", cell(id, 110), jobs.ErrNotFound)
	}
	return wrongField(err)
}

// wrongField makes a value that the service refuses wrong usage.
func wrongField(err error) error {
	if errors.As(err, new(*jobs.FieldError)) {
		return usageError{err}
	}
	return err
}
