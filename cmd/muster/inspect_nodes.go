package main

import (
	"context"
	"fmt"
	"time"

	"github.com/urfave/cli/v2"

	"muster/tasks/tasktype"
)

func inspectActive(ctx context.Context, c *cli.Context, client fleet) error {
	nodes, err := client.Active(ctx)
	if err != nil {
		return err
	}
	return show(client.env, c, nodes, []string{"WORKFLOW", "NODE", "TASK", "QUEUE", "WORKER", "FOR"}, func(n tasktype.ActiveNode) []string {
		return []string{n.Workflow, n.Node, n.Task, n.Queue, n.Worker, elapsed(n.Started)}
	})
}

func inspectReserved(ctx context.Context, c *cli.Context, client fleet) error {
	limit, err := limitOf(c)
	if err != nil {
		return err
	}
	nodes, err := client.Reserved(ctx, limit)
	if err != nil {
		return err
	}
	return show(client.env, c, nodes, []string{"WORKFLOW", "NODE", "TASK", "QUEUE"}, func(n tasktype.ReservedNode) []string {
		return []string{n.Workflow, n.Node, n.Task, n.Queue}
	})
}

func inspectScheduled(ctx context.Context, c *cli.Context, client fleet) error {
	limit, err := limitOf(c)
	if err != nil {
		return err
	}
	nodes, err := client.Due(ctx, limit)
	if err != nil {
		return err
	}
	return show(client.env, c, nodes, []string{"WORKFLOW", "NODE", "TASK", "QUEUE", "STATUS", "DUE IN"}, func(n tasktype.DueNode) []string {
		return []string{n.Workflow, n.Node, n.Task, n.Queue, string(n.Status), time.Until(n.Due).Round(100 * time.Millisecond).String()}
	})
}

func limitOf(c *cli.Context) (int, error) {
	n := c.Int("limit")
	if n < 1 || n > 10_000 {
		return 0, usageError{fmt.Errorf("--limit %d must be 1 to 10000", n)}
	}
	return n, nil
}
