package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"muster/jobs"
	"muster/orchestrator/api/client"
)

func jobsListCommand(env environment) *cli.Command {
	return apiCommand(env, &cli.Command{
		Name: "list", Usage: "list jobs, newest first: all jobs, or the jobs of a pipeline", ArgsUsage: "[NAME]",
		Description: `ITEMS is the number of finished items and of all items. A line below a waiting
job gives the reason. --stats counts the jobs of the last days.

    muster jobs list --status pending
    muster jobs list --where customer=acme --limit 10`,
		Flags: []cli.Flag{
			&cli.BoolFlag{Name: "wide", Usage: "show stages and all counts"},
			&cli.BoolFlag{Name: "stuck", Usage: "show jobs without progress, and the reason"},
			&cli.BoolFlag{Name: "stats", Usage: "show daily statistics"}, jsonFlag(),
		},
	}, listJobs)
}

// jobLists is the input of the lists of jobs and of days.
type jobLists struct {
	client.JobFilter
	client.DayFilter
}

func listJobs(s scope, in jobLists) error {
	if s.Bool("stuck") {
		return printAll(s, client.ListStuckJobs, client.None{}, "No jobs are stuck", "JOB NAME STAGE RECOVERIES SINCE", stuckRow)
	}
	if s.Bool("stats") {
		if !s.Bool("json") {
			fmt.Fprintf(s.env.stdout, "Daily Statistics (last %d days)\n\n", in.Days)
		}
		return printAll(s, client.ListJobDays, in.DayFilter, "No jobs found", "DATE CREATED COMPLETED FAILED CANCELLED", func(d jobs.Day) []any {
			return []any{d.Date, d.Created, d.Completed, d.Failed, d.Cancelled}
		})
	}
	list, err := client.All(s.ctx, s.api, client.ListJobs, in.JobFilter, s.Int("limit"))
	if err != nil {
		return err
	}
	if len(list) > 0 && !s.Bool("json") {
		fmt.Fprintf(s.env.stdout, "Showing %d jobs (offset: %d, limit: %d)\n\n", len(list), in.Offset, s.Int("limit"))
	}
	if s.Bool("wide") {
		return showPage(s, list, "No jobs found", "JOB NAME STATUS STAGES INTEGRATED PENDING VALIDATING REJECTED FAILED REVIEW CREATED WAITING", wideRow)
	}
	return showPage(s, list, "No jobs found", jobColumns, jobRow)
}

func stuckRow(st jobs.Stuck) []any {
	return []any{st.JobID, st.Name, st.Stage, st.Recoveries, st.Since, note(st.Reason)}
}

const jobColumns = "JOB NAME STATUS ITEMS CREATED"

func jobRow(j client.Job) []any {
	waiting := note("")
	if j.Waiting != "" {
		waiting = note("waiting: " + j.Waiting)
	}
	return []any{j.ID, j.Name, j.Status, fmt.Sprintf("%d/%d", j.Items.Processed(), j.Items.Total), j.CreatedAt, waiting}
}

// wideRow has all that a list has.
func wideRow(j client.Job) []any {
	var stages []string
	for _, st := range j.Stages {
		stages = append(stages, st.Name+"="+string(st.Status))
	}
	n := j.Items
	return []any{j.ID, j.Name, j.Status, strings.Join(stages, " "), n.Integrated, n.Pending, n.Validating, n.Rejected, n.Failed, n.Review,
		j.CreatedAt.Format(time.RFC3339), j.Waiting}
}

// orDash is a text for a column, or a dash where there is none.
func orDash(text string) string {
	if text == "" {
		return "-"
	}
	return text
}
