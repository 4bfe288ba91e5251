package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/urfave/cli/v2"

	"muster/jobs"
	"muster/orchestrator/api/client"
)

func jobsCancelCommand(env environment) *cli.Command {
	return &cli.Command{
		Name: "cancel", ArgsUsage: "JOB…",
		Usage: "cancel jobs; finished work is kept",
		Description: `Asks for confirmation, because a cancelled job cannot continue.

    muster jobs cancel JOB --force`,
		Flags: []cli.Flag{
			&cli.BoolFlag{Name: "force", Usage: "do not ask for confirmation"},
			&cli.BoolFlag{Name: "cleanup", Usage: "delete the document too, unless another job has it"},
			jobIDFlag(), serverFlag(),
			&cli.BoolFlag{Name: "json", Usage: "output JSON, and do not ask for confirmation"},
		},
		Action: func(c *cli.Context) error {
			names, least := c.Args().Slice(), 1
			if id := c.String("job-id"); id != "" {
				names, least = append(names, id), 0
			}
			return onJobs(env, least, -1, func(ctx context.Context, c *cli.Context, s jobScope) error {
				input := bufio.NewReader(env.stdin)
				var errs []error
				for _, name := range names {
					errs = append(errs, s.cancel(ctx, c, input, name))
				}
				return errors.Join(errs...)
			})(c)
		},
	}
}

// cancel ends the job of this id.
func (s jobScope) cancel(ctx context.Context, c *cli.Context, input *bufio.Reader, id string) error {
	j, err := s.find(ctx, id)
	if err != nil {
		return err
	}
	if j.Status.Terminal() {
		return s.notCancelled(c, j)
	}
	if !c.Bool("force") && !c.Bool("json") {
		yes, err := s.confirm(input, "Are you sure you want to cancel this job?")
		if err != nil {
			return err
		}
		if !yes {
			fmt.Fprintln(s.env.stdout, "Cancellation aborted")
			return nil
		}
	}
	cancelled, err := client.CancelJob.Call(ctx, s.api, client.JobCancel{JobPath: client.JobPath{ID: id}, Cleanup: c.Bool("cleanup")})
	if hasCode(err, "job_ended") { // meanwhile
		if j, err = s.find(ctx, id); err == nil {
			return s.notCancelled(c, j)
		}
	}
	if err != nil {
		return noJobID(id, err)
	}
	if c.Bool("json") {
		return printJSON(s.env.stdout, cancelled)
	}
	fmt.Fprintf(s.env.stdout, "Job %s cancelled successfully\n", id)
	switch {
	case cancelled.Cleanup:
		fmt.Fprintln(s.env.stdout, "Workspace files cleaned up")
	case c.Bool("cleanup") && j.Document != nil:
		fmt.Fprintln(s.env.stdout, "Document kept: another job has it")
	}
	return nil
}

// notCancelled is the error for a job that has already finished.
func (s jobScope) notCancelled(c *cli.Context, j client.Job) error {
	err := fmt.Errorf("job %s: %w: it is %s", j.ID, jobs.ErrTerminal, j.Status)
	if c.Bool("json") {
		return errors.Join(printJSON(s.env.stdout, client.CancelledJob{JobID: j.ID, Status: j.Status}), err)
	}
	return err
}

// confirm asks a question, and reports whether the user typed yes. At the end of the input
// it returns an error that names --force.
func (s jobScope) confirm(input *bufio.Reader, question string) (bool, error) {
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
