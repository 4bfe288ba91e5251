package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/urfave/cli/v2"

	"muster/tasks/tasktype"
)

func inspectWorkflows(ctx context.Context, c *cli.Context, client fleet) error {
	limit, err := limitOf(c)
	if err != nil {
		return err
	}
	filter := tasktype.WorkflowFilter{Name: c.String("name"), State: tasktype.WorkflowState(c.String("state"))}
	states := []tasktype.WorkflowState{"", tasktype.WorkflowRunning, tasktype.WorkflowSucceeded, tasktype.WorkflowFailed, tasktype.WorkflowRevoked}
	if !slices.Contains(states, filter.State) {
		return usageError{fmt.Errorf("--state %q must be running, success, failure or revoked", filter.State)}
	}
	if filter.Labels, err = labelsOf(c); err != nil {
		return err
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

// labelFlag is the flag that labelsOf reads.
func labelFlag(usage string) cli.Flag {
	return &cli.StringSliceFlag{Name: "label", Usage: usage}
}

// labelsOf returns the labels of a command line.
func labelsOf(c *cli.Context) (map[string]string, error) {
	labels, err := tasktype.ParseLabels(c.StringSlice("label"))
	if err != nil {
		return nil, usageError{err}
	}
	return labels, nil
}

var workflowColumns = []string{"WORKFLOW", "NAME", "STATE", "SENT", "FOR"}

func workflowRow(w tasktype.Workflow) []string {
	took := elapsed(w.Created)
	if !w.Ended.IsZero() {
		took = w.Ended.Sub(w.Created).Round(time.Millisecond).String()
		if w.Ended.Sub(w.Created) > time.Minute {
			took = w.Ended.Sub(w.Created).Round(time.Second).String()
		}
	}
	return []string{w.ID, w.Name, string(w.State), w.Created.Format("01-02 15:04:05"), took}
}
