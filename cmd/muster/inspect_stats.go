package main

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/urfave/cli/v2"

	"muster/tasks/tasktype"
)

// fleetStats is the JSON result of inspect stats.
type fleetStats struct {
	Queues  []tasktype.Queue  `json:"queues"`
	Workers []tasktype.Worker `json:"workers"`
}

func inspectStats(ctx context.Context, c *cli.Context, client fleet) error {
	queues, err := client.Queues(ctx)
	if err != nil {
		return err
	}
	workers, err := client.Workers(ctx)
	if err != nil {
		return err
	}
	if c.Bool("json") {
		return printJSON(client.env.stdout, fleetStats{append([]tasktype.Queue{}, queues...), append([]tasktype.Worker{}, workers...)})
	}
	if err := show(client.env, c, queues, []string{"QUEUE", "PENDING", "ACTIVE", "STALLED", "ARCHIVED", "PAUSED"}, func(q tasktype.Queue) []string {
		return []string{q.Name, strconv.FormatInt(q.Pending, 10), strconv.FormatInt(q.Active, 10),
			q.Latency.Round(time.Millisecond).String(), strconv.FormatInt(q.Archived, 10), strconv.FormatBool(q.Paused)}
	}); err != nil {
		return err
	}
	fmt.Fprintln(client.env.stdout)
	return show(client.env, c, workers, []string{"WORKER", "ACTIVE", "BEGUN", "SUCCEEDED", "FAILED", "RETRIED", "RECOVERED", "UP"}, func(w tasktype.Worker) []string {
		n := func(i int64) string { return strconv.FormatInt(i, 10) }
		return []string{w.Name, strconv.Itoa(w.Active), n(w.Stats.Begun), n(w.Stats.Succeeded), n(w.Stats.Failed),
			n(w.Stats.Retried), n(w.Stats.Recovered), elapsed(w.Started)}
	})
}
