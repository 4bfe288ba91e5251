package main

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"

	"github.com/urfave/cli/v2"

	"muster/tasks"
)

func controlCommand(env environment) *cli.Command {
	return &cli.Command{
		Name:  "control",
		Usage: "change a running fleet",
		Subcommands: []*cli.Command{
			{
				Name: "cancel", Usage: "end a workflow with its cleanup: its tasks fail, and tasks that handle failures run", ArgsUsage: "ID",
				Action: withClient(env, 1, 1, func(ctx context.Context, c *cli.Context, client fleet) error {
					return stopWorkflow(ctx, client, c.Args().First(), client.Cancel, "cancelled")
				}),
			},
			{
				Name: "revoke", Usage: "stop a workflow without cleanup: waiting tasks never run, running tasks are canceled", ArgsUsage: "ID",
				Flags: []cli.Flag{&cli.StringFlag{Name: "node", Usage: "only `NODE` and the nodes that depend on it", DefaultText: "all"}},
				Action: withClient(env, 1, 1, func(ctx context.Context, c *cli.Context, client fleet) error {
					id := c.Args().First()
					if node := c.String("node"); node != "" {
						return done(env, client.RevokeNode(ctx, id, node), "revoked: node %s of %s", node, id)
					}
					return stopWorkflow(ctx, client, id, client.Revoke, "revoked")
				}),
			},
			{
				Name: "pause", Usage: "start no more tasks of a queue; running tasks continue", ArgsUsage: "QUEUE",
				Action: withClient(env, 1, 1, func(ctx context.Context, c *cli.Context, client fleet) error {
					queue := c.Args().First()
					if err := client.PauseQueue(ctx, queue); err != nil {
						return err
					}
					live, err := client.Workers(ctx)
					if err != nil {
						return err
					}
					note := "; no live worker takes from it"
					for _, w := range live {
						if _, ok := w.Queues[queue]; ok {
							note = ""
						}
					}
					return done(env, nil, "paused: %s%s", queue, note)
				}),
			},
			{
				Name: "resume", Usage: "start tasks of a paused queue again", ArgsUsage: "QUEUE",
				Action: withClient(env, 1, 1, func(ctx context.Context, c *cli.Context, client fleet) error {
					queue := c.Args().First()
					return done(env, client.ResumeQueue(ctx, queue), "resumed: %s", queue)
				}),
			},
			{
				Name: "concurrency", Usage: "set how many tasks a worker runs at once", ArgsUsage: "N",
				Flags: []cli.Flag{&cli.StringFlag{Name: "worker", Usage: "only the worker called `NAME`", DefaultText: "all"}},
				Action: withClient(env, 1, 1, func(ctx context.Context, c *cli.Context, client fleet) error {
					n, err := strconv.Atoi(c.Args().First())
					if err != nil || n < 1 {
						return usageError{fmt.Errorf("invalid number of tasks %q: must be at least 1", c.Args().First())}
					}
					return done(env, client.SetConcurrency(ctx, c.String("worker"), n), "concurrency: %d", n)
				}),
			},
		},
	}
}

// done prints the result, unless err is not nil.
func done(env environment, err error, format string, args ...any) error {
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(env.stdout, format+"\n", args...)
	return err
}

// stopWorkflow stops a workflow that has not ended, and prints what became of it.
func stopWorkflow(ctx context.Context, client fleet, id string, stop func(context.Context, string) error, stopped string) error {
	switch status, err := tasks.Attach[json.RawMessage](client.Client, id).Status(ctx); {
	case err != nil:
		return err
	case status.Terminal():
		return done(client.env, nil, "ended already: %s, %s", id, status)
	}
	return done(client.env, stop(ctx, id), "%s: %s", stopped, id)
}
