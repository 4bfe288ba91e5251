package main

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/urfave/cli/v2"

	"muster/tasks/tasktype"
)

func inspectRates(ctx context.Context, c *cli.Context, client fleet) error {
	since, err := sinceOf(c)
	if err != nil {
		return err
	}
	step, ok := map[string]time.Duration{"minute": time.Minute, "hour": time.Hour}[c.String("step")]
	switch {
	case !ok:
		return usageError{fmt.Errorf("--step %q must be minute or hour", c.String("step"))}
	case step == time.Minute && c.Duration("since") > 24*time.Hour:
		return usageError{fmt.Errorf("--since %s: counts by minute are kept for 24 hours; use --step hour", c.Duration("since"))}
	}
	points, err := client.Rates(ctx, tasktype.RateFilter{Queue: c.String("queue"), Task: c.String("task"), Since: since, Step: step})
	if err != nil {
		return err
	}
	return show(client.env, c, points, rateColumns, rateRow)
}

var rateColumns = []string{"TIME", "QUEUE", "TASK", "SUCCEEDED", "FAILED", "REVOKED", "RETRIED", "BUSY"}

func rateRow(p tasktype.RatePoint) []string {
	n := func(i int64) string { return strconv.FormatInt(i, 10) }
	busy := p.Busy.Round(time.Millisecond)
	if busy > time.Minute {
		busy = busy.Round(time.Second)
	}
	return []string{p.Time.Format("01-02 15:04"), p.Queue, p.Task, n(p.Succeeded), n(p.Failed), n(p.Revoked),
		n(p.Retried), busy.String()}
}

// sinceOf returns the time that --since ago was.
func sinceOf(c *cli.Context) (time.Time, error) {
	d := c.Duration("since")
	if d <= 0 {
		return time.Time{}, usageError{fmt.Errorf("--since %s must be more than 0", d)}
	}
	return time.Now().Add(-d), nil
}
