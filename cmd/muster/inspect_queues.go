package main

import (
	"context"
	"strconv"
	"time"

	"github.com/urfave/cli/v2"

	"muster/tasks/tasktype"
)

func inspectQueues(ctx context.Context, c *cli.Context, client fleet) error {
	queues, err := client.Queues(ctx)
	if err != nil {
		return err
	}
	return show(client.env, c, queues, []string{"QUEUE", "PENDING", "ACTIVE", "STALLED", "ARCHIVED", "PAUSED"}, func(q tasktype.Queue) []string {
		return []string{q.Name, strconv.FormatInt(q.Pending, 10), strconv.FormatInt(q.Active, 10),
			q.Latency.Round(time.Millisecond).String(), strconv.FormatInt(q.Archived, 10), strconv.FormatBool(q.Paused)}
	})
}
