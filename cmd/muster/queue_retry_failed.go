package main

import (
	"context"
	"fmt"

	"github.com/urfave/cli/v2"

	"muster/tasks/workqueue"
)

func retryFailed(env environment, c *cli.Context) error {
	if err := arguments(c, 0, 0); err != nil {
		return err
	}
	most := c.Int("max-attempts")
	if most < 1 {
		return usageError{fmt.Errorf("--max-attempts is %d; it must be at least 1", most)}
	}
	if c.Bool("force") {
		most = 0
	}
	return withQueue(env, c, nil, func(ctx context.Context, q queueScope) error {
		found, err := q.Requeue(ctx, workqueue.RequeueOptions{MaxRetried: most, DryRun: true})
		if err != nil {
			return err
		}
		notes, err := q.Get(ctx, found[:min(20, len(found))]...)
		if err != nil {
			return err
		}
		retried := found
		if c.Bool("dry-run") {
			retried = []string{}
		} else if len(found) > 0 {
			retried, err = q.Requeue(ctx, workqueue.RequeueOptions{IDs: found, MaxRetried: most})
			if err != nil {
				return err
			}
		}
		s, err := q.Stats(ctx)
		if err != nil {
			return err
		}
		if c.Bool("json") {
			return printJSON(env.stdout, retriedItems{len(found), len(retried), s.Error})
		}
		switch {
		case len(found) == 0 && s.Error > 0:
			fmt.Fprintf(env.stdout, "No failed jobs to retry: all %d were retried %d times; --force retries them again\n", s.Error, most)
			return nil
		case len(found) == 0:
			fmt.Fprintln(env.stdout, "No failed jobs to retry")
			return nil
		}
		fmt.Fprintf(env.stdout, "Found %d failed jobs:\n", len(found))
		for _, it := range notes {
			fmt.Fprintf(env.stdout, "  %s: %s\n", it.ID, it.Note)
		}
		if more := len(found) - len(notes); more > 0 {
			fmt.Fprintf(env.stdout, "  and %d more\n", more)
		}
		if !c.Bool("dry-run") {
			fmt.Fprintf(env.stdout, "✓ Retried %d jobs\n", len(retried))
		}
		return nil
	})
}

// retriedItems is the JSON result of queue retry-failed.
type retriedItems struct {
	Found   int   `json:"found"`
	Retried int   `json:"retried"`
	Left    int64 `json:"left"` // items that are still failed
}
