package main

import (
	"context"
	"fmt"

	"github.com/urfave/cli/v2"

	"muster/orchestrator/artifact"
)

func enqueueArtifact(env environment, c *cli.Context) error {
	if err := arguments(c, 1, 2); err != nil {
		return err
	}
	id, payload := c.Args().Get(0), c.Args().Get(1)
	if payload == "" {
		payload = "{}"
	}
	item, err := artifact.Item(id, []byte(payload))
	if err != nil {
		return fmt.Errorf("✗ Invalid JSON: %w", err)
	}
	return withQueue(env.creating(), c, nil, func(ctx context.Context, q queueScope) error {
		added, err := q.Enqueue(ctx, item)
		if err != nil {
			return err
		}
		if err := artifact.Doubt(item); err != nil {
			fmt.Fprintf(q.display, "warning: %v\n", err)
		}
		if c.Bool("json") {
			return printJSON(env.stdout, enqueueResult{id, added == 1})
		}
		if added == 1 {
			fmt.Fprintf(env.stdout, "✓ Enqueued: %s\n", id)
		} else {
			fmt.Fprintf(env.stdout, "ⓘ Already queued (idempotent): %s\n", id)
		}
		return nil
	})
}

// enqueueResult is the JSON result of queue enqueue.
type enqueueResult struct {
	ID  string `json:"id"`
	New bool   `json:"new"` // false if it was in the queue
}
