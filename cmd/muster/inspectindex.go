package main

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/urfave/cli/v2"

	"muster/tasks"
	"muster/tasks/tasktype"
)

func inspectWorkflows(ctx context.Context, c *cli.Context, client fleet) error {
	limit, err := limitOf(c)
	if err != nil {
		return err
	}
	filter := tasks.WorkflowFilter{Name: c.String("name"), State: tasktype.WorkflowState(c.String("state"))}
	states := []tasktype.WorkflowState{"", tasktype.WorkflowRunning, tasktype.WorkflowSucceeded, tasktype.WorkflowFailed, tasktype.WorkflowRevoked}
	if !slices.Contains(states, filter.State) {
		return usageError{fmt.Errorf("--state %q must be running, success, failure or revoked", filter.State)}
	}
	if c.IsSet("since") {
		if filter.After, err = sinceOf(c); err != nil {
			return err
		}
	}
	var all []tasktype.Workflow
	for len(all) < limit {
		filter.Limit = min(limit-len(all), 1000)
		page, next, err := client.Workflows(ctx, filter)
		if err != nil {
			return err
		}
		all = append(all, page...)
		if filter.Cursor = next; next == "" {
			break
		}
	}
	return show(client.env, c, all, workflowColumns, workflowRow)
}

var workflowColumns = []string{"WORKFLOW", "NAME", "STATE", "SENT", "FOR"}

func workflowRow(w tasktype.Workflow) []string {
	took := ago(w.Created)
	if !w.Ended.IsZero() {
		took = w.Ended.Sub(w.Created).Round(time.Millisecond).String()
		if w.Ended.Sub(w.Created) > time.Minute {
			took = w.Ended.Sub(w.Created).Round(time.Second).String()
		}
	}
	return []string{w.ID, cell(w.Name, 36), string(w.State), w.Created.Format("01-02 15:04:05"), took}
}

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
		return usageError{fmt.Errorf("--since %s: counts by minute are kept for 24 hours; ask for --step hour", c.Duration("since"))}
	}
	points, err := client.Rates(ctx, tasks.RateFilter{Queue: c.String("queue"), Task: c.String("task"), Since: since, Step: step})
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
	return []string{p.Time.Format("01-02 15:04"), cell(p.Queue, 12), cell(p.Task, 24), n(p.Succeeded), n(p.Failed), n(p.Revoked),
		n(p.Retried), busy.String()}
}

// sinceOf returns the time that lies as long ago as --since says.
func sinceOf(c *cli.Context) (time.Time, error) {
	d := c.Duration("since")
	if d <= 0 {
		return time.Time{}, usageError{fmt.Errorf("--since %s must be more than 0", d)}
	}
	return time.Now().Add(-d), nil
}

// cell returns a text for a column of a table: in one line, and shortened to a width.
func cell(text string, width int) string {
	text = strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return '?'
		}
		return r
	}, text)
	if utf8.RuneCountInString(text) > width {
		text = string([]rune(text)[:width-1]) + "…"
	}
	return text
}
