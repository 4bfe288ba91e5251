package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/urfave/cli/v2"
	"golang.org/x/sync/errgroup"

	"muster/jobs"
	"muster/orchestrator/api/client"
	"muster/orchestrator/monitor"
)

// waitEvery is how often the progress of a job that is waited for is read.
const waitEvery = 500 * time.Millisecond

func jobsWaitCommand(env environment) *cli.Command {
	return &cli.Command{
		Name: "wait", Usage: "wait until jobs have ended; exit 1 unless all are completed without failed items", ArgsUsage: "JOB…",
		Description: `A job that makes no progress for its time stuck_after ends the wait with exit code 1;
it is not cancelled.

    muster jobs wait JOB && muster jobs status JOB --csv > items.csv`,
		Flags: []cli.Flag{
			&cli.DurationFlag{Name: "timeout", Usage: "give up after `D`", DefaultText: "never"},
			&cli.StringFlag{Name: "fail-on", Value: "failed", Usage: "exit 1 on `WHAT`: failed for failed items, never to ignore them"},
			serverFlag(), progressFlag(), jsonFlag(),
		},
		Action: onJobs(env, 1, -1, func(ctx context.Context, c *cli.Context, s jobScope) error {
			failOn := c.String("fail-on")
			if failOn != "failed" && failOn != "never" {
				return usageError{fmt.Errorf("--fail-on %q: use failed or never", failOn)}
			}
			var list []client.Job
			for _, id := range c.Args().Slice() {
				j, err := s.find(ctx, id)
				if err != nil {
					return err
				}
				list = append(list, j)
			}
			if d := c.Duration("timeout"); d > 0 {
				var cancel context.CancelFunc
				ctx, cancel = context.WithTimeoutCause(ctx, d, fmt.Errorf("not ended after %s", d))
				defer cancel()
			}
			ended, err := s.wait(ctx, list)
			if err != nil {
				return withState(ctx, err, "the jobs are not cancelled; wait again with muster jobs wait %s, or end one with muster jobs cancel JOB", strings.Join(c.Args().Slice(), " "))
			}
			if c.Bool("json") {
				err = printJSON(env.stdout, client.Page[client.Job]{Data: ended})
			} else {
				for _, j := range ended {
					fmt.Fprintf(env.stdout, "Job %s completed with status: %s\n", j.ID, newPainter(env).status(string(j.Status)))
				}
			}
			err = errors.Join(err, notCompleted(ended))
			for _, j := range ended {
				if failOn == "failed" && j.Status == jobs.Completed && j.Items.Failed > 0 {
					err = errors.Join(err, fmt.Errorf("job %s: %d items failed; see muster jobs status --failed %s, or ignore them with --fail-on never", j.ID, j.Items.Failed, j.ID))
				}
			}
			return err
		}),
	}
}

// stuckError ends the wait for a job that makes no progress.
type stuckError struct{ jobs.Stuck }

func (e *stuckError) Error() string {
	return fmt.Sprintf("job %s is stuck in stage %s: %s; it is not cancelled, see muster jobs status %s", e.JobID, e.Stage, e.Reason, e.JobID)
}

// wait shows the progress of jobs until all have ended or one is stuck.
func (s jobScope) wait(ctx context.Context, list []client.Job) ([]client.Job, error) {
	defer s.display.Close()
	ended := make([]client.Job, len(list))
	waits, ctx := errgroup.WithContext(ctx)
	for i, j := range list {
		waits.Go(func() error {
			track := s.display.Track(trackName(j))
			done, err := s.api.WaitJob(ctx, j.ID, waitEvery, func(p jobs.Progress) error {
				if track.Update(trackOf(p)); p.Stuck != nil {
					return &stuckError{*p.Stuck}
				}
				return nil
			})
			switch {
			case errors.As(err, new(*stuckError)):
				track.Fail("stuck; the job is not cancelled")
				return err
			case ctx.Err() != nil:
				err = context.Cause(ctx)
				track.Fail(err.Error() + "; the job is not cancelled")
				return fmt.Errorf("wait for job %s: %w; the job is not cancelled, see muster jobs status %s", j.ID, err, j.ID)
			case err != nil:
				track.Fail(err.Error())
				return noJobID(j.ID, err)
			case done.Status == jobs.Completed:
				track.Done(string(done.Status))
			default:
				track.Fail(endText(done))
			}
			ended[i] = done
			return nil
		})
	}
	return ended, waits.Wait()
}

// trackName is the name of a job in the progress output.
func trackName(j client.Job) string {
	if j.Kind == jobs.KindPipeline {
		return j.Name + " " + j.ID[:min(8, len(j.ID))]
	}
	return j.Name
}

// trackOf is the progress of a job as a display shows it.
func trackOf(p jobs.Progress) monitor.Progress {
	n := p.Items
	out := monitor.Progress{
		Done: n.Processed(), Total: n.Total, Unit: "items", State: p.Waiting,
		Note: fmt.Sprintf("Progress: %.1f%% | Integrated: %d | Pending: %d | Rejected: %d", p.Percent, n.Integrated, n.Pending, n.Rejected),
		Numbers: map[string]float64{
			"integrated": float64(n.Integrated), "pending": float64(n.Pending), "validating": float64(n.Validating),
			"rejected": float64(n.Rejected), "failed": float64(n.Failed), "review": float64(n.Review), "percent": p.Percent,
		},
	}
	if n.Failed > 0 {
		out.Note += fmt.Sprintf(" | Failed: %d", n.Failed)
	}
	if p.ETASeconds != nil {
		out.Numbers["eta"] = *p.ETASeconds
		out.Note += ", " + lasted(*p.ETASeconds) + " left"
	}
	if p.Waiting != "" {
		out.Note = "waiting: " + p.Waiting + ", " + out.Note
	}
	return out
}

// notCompleted is the error for jobs that ended otherwise.
func notCompleted(list []client.Job) error {
	var errs []error
	for _, j := range list {
		if j.Status != jobs.Completed {
			errs = append(errs, fmt.Errorf("job %s %s", j.ID, endText(j)))
		}
	}
	return errors.Join(errs...)
}

// endText describes the final state of a job.
func endText(j client.Job) string {
	if j.ErrorMessage != "" {
		return string(j.Status) + ": " + j.ErrorMessage
	}
	return string(j.Status)
}
