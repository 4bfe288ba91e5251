package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"muster/jobs"
	"muster/orchestrator/api/client"
	"muster/orchestrator/event"
)

func jobsCommand(env environment) *cli.Command {
	return &cli.Command{
		Name:  "jobs",
		Usage: "create, list, watch and cancel jobs of pipelines",
		Description: `The commands call the API of the orchestrator of the data directory, or of --server.
If no orchestrator is running, they start its Redis for the duration of the command.

    muster jobs start --prompt 'check the contract' --document contract.pdf
    muster jobs list --status pending
    muster jobs status JOB --wait

Exit codes: 0 done, 1 failed or no such job, 2 wrong usage.`,
		Subcommands: []*cli.Command{
			jobsStartCommand(env),
			jobsListCommand(env),
			jobsStatusCommand(env),
			jobsItemsCommand(env),
			jobsDecideCommand(env),
			jobsEventsCommand(env),
			jobsRetryCommand(env),
			jobsCancelCommand(env),
		},
	}
}

// jobCommand makes c a command on one job, which is its argument or the value of --job-id.
func jobCommand(env environment, c *cli.Command, fn func(scope, client.Job) error) *cli.Command {
	c.Flags = append(c.Flags, jobIDFlag())
	return apiCommand(env, c, func(s scope, in client.JobPath) error {
		j, err := s.find(in.ID)
		if err != nil {
			return err
		}
		return fn(s, j)
	})
}

// jobIDFlag is another way to name the job of a command.
func jobIDFlag() cli.Flag {
	return &cli.StringFlag{Name: "job-id", Usage: "the `JOB`", Hidden: true}
}

// find returns a job.
func (s scope) find(id string) (client.Job, error) {
	j, err := client.GetJob.Call(s.ctx, s.api, client.JobPath{ID: id})
	return j, noJobID(id, err)
}

// noJobID is the error for an unknown job id; it names the command that lists ids.
func noJobID(id string, err error) error {
	p, ok := errors.AsType[*client.Problem](err)
	if ok && (p.Code == "job_not_found" || slices.ContainsFunc(p.Errors, func(f client.ProblemField) bool { return f.Location == "path.id" })) {
		list := "muster jobs list"
		if strings.HasPrefix(id, "scrape_") {
			list = "muster scrapes list"
		}
		return fmt.Errorf("job %s: no such job; see %s", cell(id, 110), list)
	}
	return err
}

func jobsListCommand(env environment) *cli.Command {
	return apiCommand(env, &cli.Command{
		Name: "list", Usage: "list jobs, newest first: all jobs, or the jobs of a pipeline", ArgsUsage: "[NAME]",
		Description: `ITEMS is the number of finished items and of all items. A line below a waiting
job gives the reason. --stats counts the jobs of the last days.

    muster jobs list --status pending
    muster jobs list --where customer=acme --limit 10`,
		Flags: []cli.Flag{
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

func jobsRetryCommand(env environment) *cli.Command {
	return jobCommand(env, &cli.Command{
		Name: "retry", Usage: "retry failed items of a job", ArgsUsage: "JOB [ITEM…]",
		Description: `Failed items return to their stages, and stages that failed are retried. A
finished job is reopened; its finished items stay. --again creates its next
version instead, which repeats all items.

    muster jobs retry JOB
    muster jobs retry JOB R-12 R-13`,
		Flags: []cli.Flag{
			&cli.BoolFlag{Name: "again", Usage: "create the next version of a finished job"},
			programFlag("wait"), programFlag("timeout"), jsonFlag(),
		},
	}, scope.retry)
}

// retry gives failed items of a job new attempts, or creates its next version.
func (s scope) retry(j client.Job) error {
	switch {
	case s.Bool("again") && s.NArg() > 1:
		return usageError{errors.New("--again repeats all items; leave out ITEM")}
	case s.Bool("again") && !j.Status.Terminal():
		return fmt.Errorf("job %s: %w", j.ID, jobs.ErrNotEnded)
	case s.Bool("again"):
		next, err := client.RerunJob.Call(s.ctx, s.api, client.JobPath{ID: j.ID})
		if err != nil {
			return noJobID(j.ID, err)
		}
		if !s.Bool("json") {
			fmt.Fprintf(s.env.stdout, "Created job: %s\nVersion of: %s\n", next.ID, j.ID)
		}
		return s.retriedAs(next, 0)
	}
	r, err := client.RetryJob.Call(s.ctx, s.api, client.JobRetrial{JobPath: client.JobPath{ID: j.ID}, Body: &client.JobRetry{Keys: s.Args().Tail()}})
	if hasCode(err, "job_ended") {
		return fmt.Errorf("retry job %s: %w: muster jobs retry %s --again", j.ID, err, j.ID)
	}
	if err != nil {
		return noJobID(j.ID, err)
	}
	if r.Retried == 0 && j.Status.Terminal() {
		return s.nothingLeft(client.RetriedJob{JobID: j.ID}, fmt.Sprintf("job %s has no failed items; create its next version with muster jobs retry %s --again", j.ID, j.ID))
	}
	if !s.Bool("json") && !s.Bool("wait") {
		fmt.Fprintf(s.env.stdout, "%s of job %s: run again\n", count(r.Retried, "item"), j.ID)
	}
	return s.retriedAs(j, r.Retried)
}

// retriedAs waits for a retried job with --wait, and prints JSON.
func (s scope) retriedAs(j client.Job, n int) error {
	retried := client.RetriedJob{JobID: j.ID, Retried: n}
	switch {
	case s.Bool("wait"):
		return s.finish(j, func(client.Job) (any, error) { return retried, nil })
	case s.Bool("json"):
		return printJSON(s.env.stdout, retried)
	}
	return nil
}

func jobsCancelCommand(env environment) *cli.Command {
	input := bufio.NewReader(env.stdin)
	return apiCommand(env, &cli.Command{
		Name: "cancel", ArgsUsage: "JOB…",
		Usage: "cancel jobs; finished work is kept",
		Description: `Asks for confirmation, because a cancelled job cannot continue, unless --json is set.

    muster jobs cancel JOB --force`,
		Flags: []cli.Flag{
			&cli.BoolFlag{Name: "force", Usage: "do not ask for confirmation"},
			jobIDFlag(), jsonFlag(),
		},
	}, func(s scope, in client.JobCancel) error { return s.cancel(input, in) })
}

// cancel ends a job.
func (s scope) cancel(input *bufio.Reader, in client.JobCancel) error {
	j, err := s.find(in.ID)
	if err != nil {
		return err
	}
	if j.Status.Terminal() {
		return s.notCancelled(j)
	}
	if !s.Bool("force") && !s.Bool("json") {
		yes, err := s.confirm(input, "Are you sure you want to cancel this job?")
		if err != nil {
			return err
		}
		if !yes {
			fmt.Fprintln(s.env.stdout, "Cancellation aborted")
			return nil
		}
	}
	cancelled, err := client.CancelJob.Call(s.ctx, s.api, in)
	if err != nil || s.Bool("json") {
		return showDone(s, cancelled, noJobID(in.ID, err), "")
	}
	fmt.Fprintf(s.env.stdout, "Job %s cancelled successfully\n", in.ID)
	switch {
	case cancelled.Cleanup:
		fmt.Fprintln(s.env.stdout, "Workspace files cleaned up")
	case in.Cleanup && j.Document != nil:
		fmt.Fprintln(s.env.stdout, "Document kept: another job has it")
	}
	return nil
}

// notCancelled is the error for a job that has already finished.
func (s scope) notCancelled(j client.Job) error {
	err := fmt.Errorf("job %s: %w: it is %s", j.ID, jobs.ErrTerminal, j.Status)
	if s.Bool("json") {
		return errors.Join(printJSON(s.env.stdout, client.CancelledJob{JobID: j.ID, Status: j.Status}), err)
	}
	return err
}

// confirm asks a question, and reports whether the user typed yes. At the end of the input
// it returns an error that names --force.
func (s scope) confirm(input *bufio.Reader, question string) (bool, error) {
	fmt.Fprintf(s.env.stderr, "%s [y/N] ", question)
	line, err := input.ReadString('\n')
	if err != nil && (line == "" || !errors.Is(err, io.EOF)) {
		fmt.Fprintln(s.env.stderr)
		return false, usageError{errors.New("standard input is empty; use --force to cancel without confirmation")}
	}
	switch strings.ToLower(strings.TrimSpace(line)) {
	case "y", "yes":
		return true, nil
	}
	return false, nil
}

// allJobs is the argument of jobs events that selects all jobs.
const allJobs = "all"

func jobsEventsCommand(env environment) *cli.Command {
	return apiCommand(env, &cli.Command{
		Name: "events", Usage: "list the events of a job, or of all jobs", ArgsUsage: "JOB|all",
		Description: `With --follow it continues until it is interrupted or the job has ended. For all
jobs, --follow shows new events only; --after sets another start.

    muster jobs events JOB
    muster jobs events all --follow --json`,
		Flags: []cli.Flag{
			&cli.BoolFlag{Name: "follow", Aliases: []string{"f"}, Usage: "continue with new events"},
			&cli.StringFlag{Name: "after", Usage: "only events after the one of `ID`", DefaultText: "the oldest that is kept"},
			jsonFlag(),
		},
	}, func(s scope, in client.JobPath) error {
		var j client.Job
		if in.ID != allJobs {
			var err error
			if j, err = s.find(in.ID); err != nil {
				return err
			}
		}
		after := s.String("after")
		if after == "" && j.ID == "" && s.Bool("follow") {
			after = "$"
		}
		return s.events(j, after, s.Bool("follow"), s.Bool("json"))
	})
}

// errJobEnded stops the events of a job.
var errJobEnded = errors.New("the job has ended")

// events prints the events of a job, or of all jobs if it has no ID: the stored ones, and with follow also new ones until
// the job has ended.
func (s scope) events(j client.Job, after string, follow, asJSON bool) error {
	print := func(e event.Event, gap bool) error {
		if gap {
			fmt.Fprintln(s.env.stderr, "muster: earlier events have been deleted")
		}
		after = e.ID
		return s.printEvent(e, j.ID == "", asJSON)
	}
	if j.ID == "" {
		return s.api.Events(s.ctx, "", after, follow, print)
	}
	follow = follow && !j.Status.Terminal()
	err := s.api.Events(s.ctx, j.ID, after, follow, func(e event.Event, gap bool) error {
		if err := print(e, gap); err != nil || !follow || !endedBy(e) {
			return err
		}
		return errJobEnded
	})
	if errors.Is(err, errJobEnded) {
		return nil
	}
	return err
}

// endedBy reports whether a job has ended with an event.
func endedBy(e event.Event) bool {
	switch e.Type {
	case "job." + string(jobs.Completed), "job." + string(jobs.Failed), "job." + string(jobs.Cancelled):
		return true
	}
	return false
}

func (s scope) printEvent(e event.Event, withJob, asJSON bool) error {
	if asJSON {
		line, err := json.Marshal(e)
		if err != nil {
			return err
		}
		_, err = fmt.Fprintf(s.env.stdout, "%s\n", line)
		return err
	}
	text := fmt.Sprintf("%s  %-20s", e.Time.Local().Format("01-02 15:04:05"), e.Type)
	if withJob {
		text += "  " + e.Job
	}
	if len(e.Data) > 0 {
		data := onLine(e.Data)
		if !withJob { // with the job, no data fits
			data = cell(data, max(20, 78-len(text)))
		}
		text += "  " + data
	}
	_, err := fmt.Fprintln(s.env.stdout, strings.TrimRight(text, " "))
	return err
}
