package main

import (
	"cmp"
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/urfave/cli/v2"

	"muster/tasks/tasktype"
)

func inspectSchedule(ctx context.Context, c *cli.Context, client fleet) error {
	entries, err := client.Schedules(ctx)
	if err != nil {
		return err
	}
	return show(client.env, c, entries, []string{"ENTRY", "SPEC", "NEXT IN", "LAST", "WORKFLOW", "SENT", "MISSED", "LEADER", "ERROR"}, func(e tasktype.ScheduleEntry) []string {
		next := "-"
		if e.Leader != "" {
			next = time.Until(e.Next).Round(time.Second).String()
		}
		return []string{e.Name, e.Spec, next, age(e.Last), cmp.Or(e.Workflow, "-"), strconv.FormatInt(e.Sent, 10),
			strconv.FormatInt(e.Missed, 10), cmp.Or(e.Leader, "none"), cmp.Or(oneLine(errors.New(e.Error)), "-")}
	}, "WORKFLOW", "LEADER")
}
