package main

import (
	"context"
	"fmt"

	"github.com/urfave/cli/v2"
)

func pauseQueue(env environment, c *cli.Context, pause bool) error {
	if err := arguments(c, 0, 0); err != nil {
		return err
	}
	return withQueue(env, c, nil, func(ctx context.Context, q queueScope) error {
		change, word := q.Resume, "Resumed"
		if pause {
			change, word = q.Pause, "Paused"
		}
		changed, err := change(ctx)
		if err != nil {
			return err
		}
		if c.Bool("json") {
			return printJSON(env.stdout, pausedQueue{q.Name(), pause, changed})
		}
		fmt.Fprintf(env.stdout, "✓ %s: %s\n", word, q.Name())
		return nil
	})
}

// pausedQueue is the JSON result of queue pause and resume.
type pausedQueue struct {
	Queue   string `json:"queue"`
	Paused  bool   `json:"paused"`
	Changed bool   `json:"changed"`
}
