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

func jobsCommand(env environment) *cli.Command {
	return &cli.Command{
		Name:  "jobs",
		Usage: "list, show, retry, cancel and pause scrapes",
		Description: `They work on the jobs of the data folder. Where no orchestrator runs on it, they
start its Redis for as long as the command takes.`,
		Subcommands: []*cli.Command{
			jobsListCommand(env),
			jobsShowCommand(env),
			jobsRetryCommand(env),
			jobsHealthCommand(env),
			jobsCancelCommand(env),
			jobsPauseCommand(env),
			jobsResumeCommand(env),
		},
	}
}

// jobsAction is the action of a command on jobs, with at least and at most so many arguments; -1 is any number.
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
	if _, ok := given(c, "log-level"); !ok {
		loaded.Log.Level = "warn"
	}
	return withSystem(env, c, loaded, true, fn)
}

// noJob turns a job that does not exist into a usage error.
func noJob(err error) error {
	if errors.Is(err, sites.ErrNoJob) {
		return usageError{fmt.Errorf("%w; see muster jobs list", err)}
	}
	return err
}
