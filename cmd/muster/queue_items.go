package main

import (
	"encoding/json"
	"fmt"

	"muster/orchestrator/api/client"
	"muster/tasks/workqueue"
)

func enqueueArtifact(s scope, in client.Enqueue) error {
	if data := []byte(s.Args().Get(1)); len(data) > 0 {
		if err := json.Unmarshal(data, new(map[string]json.RawMessage)); err != nil {
			return fmt.Errorf("✗ Invalid JSON: %w", err)
		}
		in.Body.Data = data
	}
	e, err := client.EnqueueArtifact.Call(s.ctx, s.api, in)
	if err == nil && e.Warning != "" {
		fmt.Fprintf(s.env.stderr, "warning: %s\n", e.Warning)
	}
	text := "ⓘ Already queued (idempotent)"
	if e.New {
		text = "✓ Enqueued"
	}
	return showDone(s, e, err, "%s: %s", text, e.ID)
}

func queueStats(s scope, in client.QueuePath) error {
	format := s.String("format")
	if err := oneOf("format", format, []string{"table", "json"}); err != nil {
		return err
	}
	stats, err := client.GetQueue.Call(s.ctx, s.api, in)
	if err != nil {
		return err
	}
	if format == "json" || s.Bool("json") {
		return printJSON(s.env.stdout, stats)
	}
	return printQueue(s.env, in.Queue, stats)
}

func printQueue(env environment, name string, s workqueue.Stats) error {
	state := ""
	if s.Paused {
		state = " (paused)"
	}
	fmt.Fprintf(env.stdout, "Queue Statistics: %s%s\n", name, state)
	t := newTable(env.stdout, "STATE ITEMS")
	for _, r := range []struct {
		state string
		n     int64
	}{
		{"queued", s.Queued}, {"  of these delayed", s.Delayed}, {"in_progress", s.InProgress},
		{"done", s.Done}, {"skipped", s.Skipped}, {"error", s.Error}, {"total", s.Total},
	} {
		t.row(r.state, r.n)
	}
	return t.flush()
}

func retryFailed(s scope, in client.QueueRetry) error {
	most := s.Int("max-attempts")
	if most < 1 {
		return usageError{fmt.Errorf("--max-attempts is %d; it must be at least 1", most)}
	}
	in.Body = client.ItemRetry{MaxRetried: most, DryRun: s.Bool("dry-run")}
	if s.Bool("force") {
		in.Body.MaxRetried = 0
	}
	done, err := client.RetryItems.Call(s.ctx, s.api, in)
	switch {
	case err != nil:
		return err
	case s.Bool("json"):
		return printJSON(s.env.stdout, done)
	case done.Found == 0 && done.Left > 0:
		fmt.Fprintf(s.env.stdout, "No failed jobs to retry: all %d were retried %d times; --force retries them again\n", done.Left, most)
		return nil
	case done.Found == 0:
		fmt.Fprintln(s.env.stdout, "No failed jobs to retry")
		return nil
	}
	fmt.Fprintf(s.env.stdout, "Found %d failed jobs:\n", done.Found)
	for _, it := range done.Items {
		fmt.Fprintf(s.env.stdout, "  %s: %s\n", it.ID, it.Note)
	}
	if more := done.Found - len(done.Items); more > 0 {
		fmt.Fprintf(s.env.stdout, "  and %d more\n", more)
	}
	if !in.Body.DryRun {
		fmt.Fprintf(s.env.stdout, "✓ Retried %d jobs\n", done.Retried)
	}
	return nil
}
