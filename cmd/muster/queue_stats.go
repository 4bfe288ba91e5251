package main

import (
	"context"
	"fmt"

	"github.com/urfave/cli/v2"

	"muster/tasks/workqueue"
)

func queueStats(env environment, c *cli.Context) error {
	if err := arguments(c, 0, 0); err != nil {
		return err
	}
	format := c.String("format")
	if format != "table" && format != "json" {
		return usageError{fmt.Errorf("no format %q; use table or json", format)}
	}
	asJSON := format == "json" || c.Bool("json")
	return withQueue(env, c, nil, func(ctx context.Context, q queueScope) error {
		s, err := q.Stats(ctx)
		if err != nil {
			return err
		}
		if c.Bool("verify") {
			if _, err := q.Verify(ctx); err != nil {
				return err
			}
		}
		return printStats(env, q, s, asJSON)
	})
}

func printStats(env environment, q queueScope, s workqueue.Stats, asJSON bool) error {
	if asJSON {
		return printJSON(env.stdout, s)
	}
	state := ""
	if s.Paused {
		state = " (paused)"
	}
	fmt.Fprintf(env.stdout, "Queue Statistics: %s%s\n", q.Name(), state)
	t := newTable(env.stdout, "STATE", "ITEMS")
	for _, r := range []struct {
		state string
		n     int64
	}{
		{"queued", s.Queued}, {"  of these delayed", s.Delayed}, {"in_progress", s.InProgress},
		{"done", s.Done}, {"skipped", s.Skipped}, {"error", s.Error}, {"total", s.Total},
	} {
		t.row(r.state, fmt.Sprint(r.n))
	}
	return t.flush()
}
