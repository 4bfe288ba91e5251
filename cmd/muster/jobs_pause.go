package main

import (
	"context"
	"fmt"

	"github.com/urfave/cli/v2"

	"muster/orchestrator/api/client"
)

func jobsPauseCommand(env environment) *cli.Command {
	return &cli.Command{
		Name: "pause", ArgsUsage: "JOB…",
		Usage: "pause jobs of pipelines until jobs resume: no agent gets their work",
		Flags: []cli.Flag{serverFlag(), jsonFlag()},
		Action: onJobs(env, 1, -1, func(ctx context.Context, c *cli.Context, s jobScope) error {
			return s.change(ctx, c, "paused", s.api.PauseJob)
		}),
	}
}

func jobsResumeCommand(env environment) *cli.Command {
	return &cli.Command{
		Name: "resume", ArgsUsage: "JOB…",
		Usage: "resume paused jobs",
		Flags: []cli.Flag{serverFlag(), jsonFlag()},
		Action: onJobs(env, 1, -1, func(ctx context.Context, c *cli.Context, s jobScope) error {
			return s.change(ctx, c, "resumed", s.api.ResumeJob)
		}),
	}
}

// change calls a function for each job of the arguments, and prints the result.
func (s jobScope) change(ctx context.Context, c *cli.Context, done string, fn func(context.Context, string) (client.Job, error)) error {
	list := []client.Job{}
	for _, id := range c.Args().Slice() {
		j, err := fn(ctx, id)
		if err != nil {
			return noJobID(id, err)
		}
		if list = append(list, j); !c.Bool("json") {
			fmt.Fprintf(s.env.stdout, "%s: %s\n", done, id)
		}
	}
	if c.Bool("json") {
		return printJSON(s.env.stdout, client.Page[client.Job]{Data: list})
	}
	return nil
}
