package main

import (
	"context"
	"fmt"
	"strconv"

	"github.com/urfave/cli/v2"
)

func controlCommand(env environment) *cli.Command {
	return &cli.Command{
		Name:  "control",
		Usage: "change a running fleet",
		Subcommands: []*cli.Command{
			{
				Name: "revoke", Usage: "stop a workflow: what waits never runs, what runs is told to end", ArgsUsage: "ID",
				Flags: []cli.Flag{&cli.StringFlag{Name: "node", Usage: "only `NODE`, and what needs its value", DefaultText: "all"}},
				Action: withClient(env, 1, 1, func(ctx context.Context, c *cli.Context, client fleet) error {
					if node := c.String("node"); node != "" {
						return client.RevokeNode(ctx, c.Args().First(), node)
					}
					return client.Revoke(ctx, c.Args().First())
				}),
			},
			{
				Name: "pause", Usage: "stop taking work from a queue; what runs goes on", ArgsUsage: "QUEUE",
				Action: withClient(env, 1, 1, func(ctx context.Context, c *cli.Context, client fleet) error {
					return client.PauseQueue(ctx, c.Args().First())
				}),
			},
			{
				Name: "resume", Usage: "take work from a queue again", ArgsUsage: "QUEUE",
				Action: withClient(env, 1, 1, func(ctx context.Context, c *cli.Context, client fleet) error {
					return client.ResumeQueue(ctx, c.Args().First())
				}),
			},
			{
				Name: "concurrency", Usage: "let the workers run N tasks at once", ArgsUsage: "N",
				Flags: []cli.Flag{&cli.StringFlag{Name: "worker", Usage: "only the worker called `NAME`", DefaultText: "all"}},
				Action: withClient(env, 1, 1, func(ctx context.Context, c *cli.Context, client fleet) error {
					n, err := strconv.Atoi(c.Args().First())
					if err != nil || n < 1 {
						return usageError{fmt.Errorf("%q is no number of tasks; it must be 1 or more", c.Args().First())}
					}
					return client.SetConcurrency(ctx, c.String("worker"), n)
				}),
			},
		},
	}
}
