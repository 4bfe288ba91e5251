package main

import (
	"context"
	"time"

	"github.com/urfave/cli/v2"
)

func inspectCommand(env environment) *cli.Command {
	leaf := func(name, usage, args string, n int, fn func(context.Context, *cli.Context, fleet) error, flags ...cli.Flag) *cli.Command {
		return &cli.Command{Name: name, Usage: usage, ArgsUsage: args, Flags: append(flags, watchFlag(), jsonFlag()),
			Action: withClient(env, n, n, fn)}
	}
	limit := func() cli.Flag { return &cli.IntFlag{Name: "limit", Usage: "at most `N`", Value: 100} }
	return &cli.Command{
		Name:  "inspect",
		Usage: "look at a running fleet",
		Subcommands: []*cli.Command{
			leaf("workers", "ping and list the workers; exit 1 if one does not reply or none is running", "", 0, inspectWorkers,
				&cli.DurationFlag{Name: "timeout", Usage: "wait `D` for replies", Value: 2 * time.Second},
				&cli.BoolFlag{Name: "tasks", Usage: "list the tasks that the workers have handlers for instead"}),
			leaf("tasks", "list running, ready or scheduled tasks", "", 0, inspectTasks,
				&cli.StringFlag{Name: "state", Usage: "tasks in `STATE`: running, which includes prefetched ones, ready or scheduled", Value: "running"}, limit()),
			leaf("schedule", "list schedule entries with their last and next run", "", 0, inspectSchedule),
			leaf("queues", "list queues with their ready and running tasks and the time since a task was taken", "", 0, inspectQueues),
			leaf("workflow", "draw the tasks of a workflow, with states and times", "ID", 1, inspectWorkflow,
				&cli.BoolFlag{Name: "all", Usage: "draw every member of large groups and maps"}),
			leaf("workflows", "list running workflows and finished ones with kept results, latest first", "", 0, inspectWorkflows,
				&cli.StringFlag{Name: "state", Usage: "only workflows in `STATE`: running, success, failure or revoked"},
				&cli.StringFlag{Name: "name", Usage: "only workflows with this name, or whose first or last task is `NAME`"},
				labelFlag("only workflows with the label `KEY=VALUE`; may be repeated"),
				&cli.DurationFlag{Name: "since", Usage: "only workflows that ended in the last `D`, or were sent in it and run"}, limit()),
			leaf("rates", "count task results by minute or hour", "", 0, inspectRates,
				&cli.StringFlag{Name: "queue", Usage: "only tasks of `QUEUE`"},
				&cli.StringFlag{Name: "task", Usage: "only workflows whose first or last task is `TASK`"},
				&cli.DurationFlag{Name: "since", Usage: "the last `D`; minutes are kept for 24 hours, hours for 30 days", Value: time.Hour},
				&cli.StringFlag{Name: "step", Usage: "count by `STEP`: minute or hour", Value: "minute"}),
		},
	}
}
