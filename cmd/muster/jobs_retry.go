package main

import (
	"errors"
	"fmt"

	"github.com/urfave/cli/v2"

	"muster/orchestrator/api/client"
)

func jobsRetryCommand(env environment) *cli.Command {
	return jobCommand(env, &cli.Command{
		Name: "retry", Usage: "retry failed items of a job", ArgsUsage: "JOB",
		Description: `Failed items return to their stages, and stages that failed are retried. A
finished job is reopened; its finished items stay. --again creates its next
version instead, which repeats all items.

    muster jobs retry JOB
    muster jobs retry JOB --item R-12 --item R-13`,
		Flags: []cli.Flag{
			&cli.StringSliceFlag{Name: "item", Usage: "only the item `KEY`; may be repeated"},
			&cli.BoolFlag{Name: "again", Usage: "create the next version of a finished job"},
			&cli.BoolFlag{Name: "wait", Usage: "wait until the job has finished"},
			jsonFlag(),
		},
	}, scope.retry)
}

// retry gives failed items of a job new attempts, or creates its next version.
func (s scope) retry(j client.Job) error {
	if s.Bool("again") && j.Status.Terminal() {
		next, err := client.RerunJob.Call(s.ctx, s.api, client.JobPath{ID: j.ID})
		if err != nil {
			return noJobID(j.ID, err)
		}
		if !s.Bool("json") {
			fmt.Fprintf(s.env.stdout, "Created job: %s\nVersion of: %s\n", next.ID, j.ID)
		}
		return s.retriedAs(next, 0)
	}
	r, err := client.RetryJob.Call(s.ctx, s.api, client.JobRetrial{JobPath: client.JobPath{ID: j.ID}, Body: &client.JobRetry{Keys: s.StringSlice("item")}})
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
	var failed error
	if s.Bool("wait") {
		ended, err := s.work(j)
		if err != nil {
			return err
		}
		failed = notCompleted(ended)
		if !s.Bool("json") {
			fmt.Fprintf(s.env.stdout, "Job completed with status: %s\n", ended.Status)
		}
	}
	if s.Bool("json") {
		return errors.Join(printJSON(s.env.stdout, client.RetriedJob{JobID: j.ID, Retried: n}), failed)
	}
	return failed
}
