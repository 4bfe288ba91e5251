package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"muster/jobs"
	"muster/orchestrator/api/client"
)

func jobsListCommand(env environment) *cli.Command {
	return &cli.Command{
		Name: "list", Usage: "list jobs, newest first: all jobs, or the jobs of a pipeline", ArgsUsage: "[NAME]",
		Description: `ITEMS is the number of finished items and of all items. A line below a waiting
job gives the reason. --stats counts the jobs of the last days.

    muster jobs list --status pending
    muster jobs list --where customer=acme --limit 10`,
		Flags: []cli.Flag{
			&cli.StringSliceFlag{Name: "status", Usage: "only jobs in `STATE`: created, processing, completed, failed, cancelled, or pending if a stage is pending; may be repeated"},
			&cli.StringFlag{Name: "label", Usage: "only jobs with `LABEL`"},
			&cli.StringSliceFlag{Name: "where", Usage: "only jobs with `KEY=VALUE` in their context; the pipeline must declare the key; may be repeated"},
			&cli.IntFlag{Name: "limit", Usage: "at most `N`, from 1 to 1000", Value: 50},
			&cli.IntFlag{Name: "offset", Usage: "skip the first `N`"},
			&cli.BoolFlag{Name: "wide", Usage: "show stages and all counts"},
			&cli.BoolFlag{Name: "stuck", Usage: "show jobs without progress, and the reason"},
			&cli.BoolFlag{Name: "stats", Usage: "show daily statistics"},
			&cli.IntFlag{Name: "days", Usage: "with --stats, include the last `N` days, from 1 to 30", Value: 7},
			serverFlag(), jsonFlag(),
		},
		Action: func(c *cli.Context) error {
			if c.Bool("stats") {
				return listDays(env, c)
			}
			if c.Bool("stuck") {
				return onJobs(env, 0, 0, func(ctx context.Context, c *cli.Context, s jobScope) error { return s.listStuck(ctx, c) })(c)
			}
			filter, err := jobFilter(c)
			if err != nil {
				return err
			}
			return onJobs(env, 0, 1, func(ctx context.Context, c *cli.Context, s jobScope) error {
				return s.list(ctx, c, filter)
			})(c)
		},
	}
}

// jobFilter returns the filter that the flags of jobs list set.
func jobFilter(c *cli.Context) (f client.JobFilter, err error) {
	f = client.JobFilter{Status: c.StringSlice("status"), Name: c.Args().First(), Label: c.String("label"), Context: c.StringSlice("where"), Offset: c.Int("offset")}
	f.Limit, err = within(c, "limit", 1, 1000)
	return f, err
}

func (s jobScope) list(ctx context.Context, c *cli.Context, f client.JobFilter) error {
	list, err := client.All(ctx, s.api, client.ListJobs, f, f.Limit)
	if err != nil {
		return err
	}
	switch {
	case c.Bool("json"):
		return printJSON(s.env.stdout, client.Page[client.Job]{Data: list})
	case len(list) == 0:
		fmt.Fprintln(s.env.stdout, "No jobs found")
		return nil
	}
	fmt.Fprintf(s.env.stdout, "Showing %d jobs (offset: %d, limit: %d)\n\n", len(list), f.Offset, f.Limit)
	if c.Bool("wide") {
		return printWideJobs(s.env, list)
	}
	return printJobs(s.env, list)
}

// listStuck prints the jobs without progress.
func (s jobScope) listStuck(ctx context.Context, c *cli.Context) error {
	list, err := client.All(ctx, s.api, client.ListStuckJobs, client.None{}, 0)
	if err != nil {
		return err
	}
	if c.Bool("json") {
		return printJSON(s.env.stdout, client.Page[jobs.Stuck]{Data: list})
	}
	return printStuck(s.env, list)
}

func printStuck(env environment, list []jobs.Stuck) error {
	if len(list) == 0 {
		fmt.Fprintln(env.stdout, "No jobs are stuck")
		return nil
	}
	t := newTable(env.stdout, "JOB", "NAME", "STAGE", "RECOVERIES", "SINCE")
	for _, st := range list {
		t.add(st.Reason, st.JobID, st.Name, st.Stage, fmt.Sprint(st.Recoveries), age(st.Since))
	}
	return t.flush()
}

// printJobs prints a table of jobs.
func printJobs(env environment, jobs []client.Job) error {
	t := newTable(env.stdout, "JOB", "NAME", "STATUS", "ITEMS", "CREATED")
	for _, j := range jobs {
		t.add(note(j), j.ID, j.Name, string(j.Status), fmt.Sprintf("%d/%d", j.Items.Processed(), j.Items.Total), age(j.CreatedAt))
	}
	return t.flush()
}

// printWideJobs prints a table of jobs with all that a list has.
func printWideJobs(env environment, jobs []client.Job) error {
	t := newTable(env.stdout, "JOB", "NAME", "STATUS", "STAGES", "INTEGRATED", "PENDING", "VALIDATING", "REJECTED", "FAILED", "REVIEW", "CREATED", "WAITING")
	for _, j := range jobs {
		var stages []string
		for _, st := range j.Stages {
			stages = append(stages, st.Name+"="+string(st.Status))
		}
		n := j.Items
		t.row(j.ID, j.Name, string(j.Status), orDash(strings.Join(stages, " ")), fmt.Sprint(n.Integrated), fmt.Sprint(n.Pending), fmt.Sprint(n.Validating),
			fmt.Sprint(n.Rejected), fmt.Sprint(n.Failed), fmt.Sprint(n.Review), j.CreatedAt.Format(time.RFC3339), orDash(j.Waiting))
	}
	return t.flush()
}

// note is the line below a job in a list: the reason why it waits.
func note(j client.Job) string {
	if j.Waiting == "" {
		return ""
	}
	return "waiting: " + j.Waiting
}

// listDays prints the daily statistics.
func listDays(env environment, c *cli.Context) error {
	days := c.Int("days")
	return onJobs(env, 0, 0, func(ctx context.Context, c *cli.Context, s jobScope) error {
		list, err := client.All(ctx, s.api, client.ListJobDays, client.DayFilter{Days: days}, 0)
		if err != nil {
			return err
		}
		if !c.Bool("json") {
			fmt.Fprintf(env.stdout, "Daily Statistics (last %d days)\n\n", days)
		}
		return showPage(env, c, list, "No jobs found", []string{"DATE", "CREATED", "COMPLETED", "FAILED", "CANCELLED"}, func(d jobs.Day) []string {
			return []string{d.Date, fmt.Sprint(d.Created), fmt.Sprint(d.Completed), fmt.Sprint(d.Failed), fmt.Sprint(d.Cancelled)}
		})
	})(c)
}

// orDash is a text for a column, or a dash where there is none.
func orDash(text string) string {
	if text == "" {
		return "-"
	}
	return text
}
