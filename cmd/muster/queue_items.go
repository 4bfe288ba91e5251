package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/urfave/cli/v2"

	"muster/orchestrator/api/client"
	"muster/tasks/workqueue"
)

func enqueueArtifact(env environment) cli.ActionFunc {
	return onAPI(env.creating(), 1, 2, func(ctx context.Context, c *cli.Context, api *client.Client) error {
		artifact := client.NewArtifact{ID: c.Args().Get(0)}
		if data := []byte(c.Args().Get(1)); len(data) > 0 {
			if err := json.Unmarshal(data, new(map[string]json.RawMessage)); err != nil {
				return fmt.Errorf("✗ Invalid JSON: %w", err)
			}
			artifact.Data = data
		}
		e, err := client.EnqueueArtifact.Call(ctx, api, client.Enqueue{QueuePath: client.QueuePath{Queue: c.String("queue")}, Body: artifact})
		if err != nil {
			return err
		}
		if e.Warning != "" {
			fmt.Fprintf(env.stderr, "warning: %s\n", e.Warning)
		}
		switch {
		case c.Bool("json"):
			return printJSON(env.stdout, e)
		case e.New:
			fmt.Fprintf(env.stdout, "✓ Enqueued: %s\n", e.ID)
		default:
			fmt.Fprintf(env.stdout, "ⓘ Already queued (idempotent): %s\n", e.ID)
		}
		return nil
	})
}

func pauseQueue(env environment, pause bool) cli.ActionFunc {
	return onAPI(env, 0, 0, func(ctx context.Context, c *cli.Context, api *client.Client) error {
		change, word := client.ResumeQueue, "Resumed"
		if pause {
			change, word = client.PauseQueue, "Paused"
		}
		p, err := change.Call(ctx, api, client.QueueChange{QueuePath: client.QueuePath{Queue: c.String("queue")}})
		return showDone(env, c, p, err, "✓ %s: %s", word, p.Queue)
	})
}

func forgetItems(env environment) cli.ActionFunc {
	return onAPI(env, 0, 1000, func(ctx context.Context, c *cli.Context, api *client.Client) error {
		which := client.ItemForget{IDs: c.Args().Slice(), EndedFor: c.String("ended-for")}
		if len(which.IDs) == 0 && which.EndedFor == "" {
			return usageError{errors.New("give the IDs of items, or --ended-for")}
		}
		f, err := client.ForgetItems.Call(ctx, api, client.QueueForget{QueuePath: client.QueuePath{Queue: c.String("queue")}, Body: which})
		return showDone(env, c, f, err, "✓ Deleted: %d items", f.Forgotten)
	})
}

func deleteQueue(env environment) cli.ActionFunc {
	return onAPI(env, 0, 0, func(ctx context.Context, c *cli.Context, api *client.Client) error {
		queue := client.QueuePath{Queue: c.String("queue")}
		_, err := client.DeleteQueue.Call(ctx, api, queue)
		return showDone(env, c, map[string]string{"queue": queue.Queue}, err, "✓ Deleted: %s", queue.Queue)
	})
}

func queueStats(env environment) cli.ActionFunc {
	return func(c *cli.Context) error {
		format := c.String("format")
		if format != "table" && format != "json" {
			return usageError{fmt.Errorf("no format %q; use table or json", format)}
		}
		return onAPI(env, 0, 0, func(ctx context.Context, c *cli.Context, api *client.Client) error {
			s, err := client.GetQueue.Call(ctx, api, client.QueuePath{Queue: c.String("queue")})
			if err != nil {
				return err
			}
			if format == "json" || c.Bool("json") {
				return printJSON(env.stdout, s)
			}
			return printQueue(env, c.String("queue"), s)
		})(c)
	}
}

func printQueue(env environment, name string, s workqueue.Stats) error {
	state := ""
	if s.Paused {
		state = " (paused)"
	}
	fmt.Fprintf(env.stdout, "Queue Statistics: %s%s\n", name, state)
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

func retryFailed(env environment) cli.ActionFunc {
	return func(c *cli.Context) error {
		most := c.Int("max-attempts")
		if most < 1 {
			return usageError{fmt.Errorf("--max-attempts is %d; it must be at least 1", most)}
		}
		retry := client.ItemRetry{MaxRetried: most, DryRun: c.Bool("dry-run")}
		if c.Bool("force") {
			retry.MaxRetried = 0
		}
		return onAPI(env, 0, 0, func(ctx context.Context, c *cli.Context, api *client.Client) error {
			done, err := client.RetryItems.Call(ctx, api, client.QueueRetry{QueuePath: client.QueuePath{Queue: c.String("queue")}, Body: retry})
			switch {
			case err != nil:
				return err
			case c.Bool("json"):
				return printJSON(env.stdout, done)
			case done.Found == 0 && done.Left > 0:
				fmt.Fprintf(env.stdout, "No failed jobs to retry: all %d were retried %d times; --force retries them again\n", done.Left, most)
				return nil
			case done.Found == 0:
				fmt.Fprintln(env.stdout, "No failed jobs to retry")
				return nil
			}
			fmt.Fprintf(env.stdout, "Found %d failed jobs:\n", done.Found)
			for _, it := range done.Items {
				fmt.Fprintf(env.stdout, "  %s: %s\n", it.ID, it.Note)
			}
			if more := done.Found - len(done.Items); more > 0 {
				fmt.Fprintf(env.stdout, "  and %d more\n", more)
			}
			if !retry.DryRun {
				fmt.Fprintf(env.stdout, "✓ Retried %d jobs\n", done.Retried)
			}
			return nil
		})(c)
	}
}
