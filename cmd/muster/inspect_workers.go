package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"muster/tasks"
	"muster/tasks/tasktype"
)

// pingResult is a row of inspect workers: the reply of a worker, with its properties.
type pingResult struct {
	tasktype.Pong
	tasktype.Worker
}

func inspectWorkers(ctx context.Context, c *cli.Context, client fleet) error {
	if c.Bool("tasks") {
		return inspectRegistered(ctx, c, client)
	}
	pongs, err := client.PingWorkers(ctx, c.Duration("timeout"))
	if err != nil {
		return err
	}
	workers, err := client.Workers(ctx)
	if err != nil && !tasks.Refused(err) { // workers reply while Redis rejects writes, but without their properties
		return err
	}
	var rows []pingResult
	var silent []string
	for _, p := range pongs {
		row := pingResult{Pong: p, Worker: tasktype.Worker{Name: p.Worker}}
		if i := slices.IndexFunc(workers, func(w tasktype.Worker) bool { return w.Name == p.Worker }); i >= 0 {
			row.Worker = workers[i]
		}
		if rows = append(rows, row); !p.Answered {
			silent = append(silent, p.Worker)
		}
	}
	err = show(client.env, c, rows, []string{"WORKER", "REPLY", "HOST", "PID", "ACTIVE", "CONCURRENCY", "UP", "QUEUES"}, func(r pingResult) []string {
		after := "none"
		if r.Answered {
			after = r.After.Round(10 * time.Microsecond).String()
		}
		return []string{r.Name, after, r.Host, strconv.Itoa(r.PID), strconv.Itoa(r.Active), strconv.Itoa(r.Concurrency),
			elapsed(r.Started), strings.Join(slices.Sorted(maps.Keys(r.Queues)), " ")}
	}, "HOST", "PID")
	switch {
	case err != nil:
		return err
	case len(rows) == 0:
		return errors.New("no workers are running; start one with muster worker or muster start")
	case len(silent) > 0:
		return fmt.Errorf("no reply from %s within %s: it is stopped, has no connection to Redis, or has just died",
			strings.Join(silent, ", "), c.Duration("timeout"))
	}
	return nil
}
