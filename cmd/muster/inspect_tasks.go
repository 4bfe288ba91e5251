package main

import (
	"context"
	"fmt"
	"time"

	"github.com/urfave/cli/v2"

	"muster/tasks/tasktype"
)

func inspectTasks(ctx context.Context, c *cli.Context, client fleet) error {
	limit, err := limitOf(c)
	if err != nil {
		return err
	}
	columns := []string{"WORKFLOW", "NODE", "TASK", "QUEUE"}
	switch state := c.String("state"); state {
	case "running":
		nodes, err := client.Active(ctx)
		if err != nil {
			return err
		}
		return show(client.env, c, nodes[:min(limit, len(nodes))], append(columns, "WORKER", "FOR"), func(n tasktype.ActiveNode) []string {
			return []string{n.Workflow, n.Node, n.Task, n.Queue, n.Worker, elapsed(n.Started)}
		})
	case "ready":
		nodes, err := client.Reserved(ctx, limit)
		if err != nil {
			return err
		}
		return show(client.env, c, nodes, columns, func(n tasktype.ReservedNode) []string {
			return []string{n.Workflow, n.Node, n.Task, n.Queue}
		})
	case "scheduled":
		nodes, err := client.Due(ctx, limit)
		if err != nil {
			return err
		}
		return show(client.env, c, nodes, append(columns, "STATUS", "DUE IN"), func(n tasktype.DueNode) []string {
			return []string{n.Workflow, n.Node, n.Task, n.Queue, string(n.Status), time.Until(n.Due).Round(100 * time.Millisecond).String()}
		})
	default:
		return usageError{fmt.Errorf("--state %q must be running, ready or scheduled", state)}
	}
}

func limitOf(c *cli.Context) (int, error) {
	n := c.Int("limit")
	if n < 1 || n > 10_000 {
		return 0, usageError{fmt.Errorf("--limit %d must be 1 to 10000", n)}
	}
	return n, nil
}
