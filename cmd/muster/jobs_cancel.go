package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/urfave/cli/v2"

	"muster/jobs"
	"muster/orchestrator/api/client"
)

func jobsCancelCommand(env environment) *cli.Command {
	return apiCommand(env, &cli.Command{
		Name: "cancel", ArgsUsage: "JOB…",
		Usage: "cancel jobs; finished work is kept",
		Description: `Asks for confirmation, because a cancelled job cannot continue.

    muster jobs cancel JOB --force`,
		Flags: []cli.Flag{
			&cli.BoolFlag{Name: "force", Usage: "do not ask for confirmation"},
			jobIDFlag(), &cli.BoolFlag{Name: "json", Usage: "output JSON, and do not ask for confirmation"},
		},
	}, func(s scope, in client.JobCancel) error {
		input := bufio.NewReader(env.stdin)
		var errs []error
		for _, id := range append(s.Args().Slice(), s.String("job-id")) {
			if in.ID = id; id != "" {
				errs = append(errs, s.cancel(input, in))
			}
		}
		return errors.Join(errs...)
	})
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
	if hasCode(err, "job_ended") { // meanwhile
		if j, err = s.find(in.ID); err == nil {
			return s.notCancelled(j)
		}
	}
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
