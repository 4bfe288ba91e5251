package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"muster/jobs"
	"muster/orchestrator/api/client"
	"muster/orchestrator/monitor"
)

// waitEvery is how often the progress of a job that is waited for is read, in addition to after each event.
const waitEvery = 2 * time.Second

// waited waits for a job and shows it. It returns an error unless the job is completed and, depending on --fail-on, without
// failed items.
func (s scope) waited(j client.Job) error {
	failOn := s.String("fail-on")
	if err := oneOf("fail-on", failOn, []string{"failed", "never"}); err != nil {
		return err
	}
	if d := s.Duration("timeout"); d > 0 {
		var cancel context.CancelFunc
		s.ctx, cancel = context.WithTimeoutCause(s.ctx, d, fmt.Errorf("not ended after %s", d))
		defer cancel()
	}
	id := j.ID
	j, err := s.wait(j)
	if err != nil {
		return withState(s.ctx, err, "the job is not cancelled; wait again with muster jobs status %s --wait, or end it with muster jobs cancel %s", id, id)
	}
	err = errors.Join(s.showStatus(j), notCompleted(j))
	if failOn == "failed" && j.Status == jobs.Completed && j.Items.Failed > 0 {
		err = errors.Join(err, fmt.Errorf("job %s: %d items failed; see muster jobs status --failed %s, or ignore them with --fail-on never", id, j.Items.Failed, id))
	}
	return err
}

// stuckError ends the wait for a job that makes no progress.
type stuckError struct{ jobs.Stuck }

func (e *stuckError) Error() string {
	return fmt.Sprintf("job %s is stuck in stage %s: %s; it is not cancelled, see muster jobs status %s", e.JobID, e.Stage, e.Reason, e.JobID)
}

// wait shows the progress of a job until it has ended or is stuck.
func (s scope) wait(j client.Job) (client.Job, error) {
	defer s.display.Close()
	track := s.display.Track(trackName(j))
	ended, err := s.api.WaitJob(s.ctx, j.ID, waitEvery, func(p jobs.Progress) error {
		if track.Update(trackOf(p)); p.Stuck != nil {
			return &stuckError{*p.Stuck}
		}
		return nil
	})
	switch {
	case errors.As(err, new(*stuckError)):
		track.Fail("stuck; the job is not cancelled")
	case s.ctx.Err() != nil:
		err = context.Cause(s.ctx)
		track.Fail(err.Error() + "; the job is not cancelled")
		err = fmt.Errorf("wait for job %s: %w; the job is not cancelled, see muster jobs status %s", j.ID, err, j.ID)
	case err != nil:
		track.Fail(err.Error())
		err = noJobID(j.ID, err)
	case ended.Status == jobs.Completed:
		track.Done(string(ended.Status))
	default:
		track.Fail(endText(ended))
	}
	return ended, err
}

// trackName is the name of a job in the progress output.
func trackName(j client.Job) string {
	return j.Name + " " + j.ID[:min(8, len(j.ID))]
}

// trackOf is the progress of a job as a display shows it.
func trackOf(p jobs.Progress) monitor.Progress {
	n := p.Items
	out := monitor.Progress{
		Done: n.Processed(), Total: n.Total, Unit: "items",
		Note: fmt.Sprintf("Progress: %.1f%% | Integrated: %d | Pending: %d | Rejected: %d", p.Percent, n.Integrated, n.Pending, n.Rejected),
	}
	if n.Failed > 0 {
		out.Note += fmt.Sprintf(" | Failed: %d", n.Failed)
	}
	if p.ETASeconds != nil {
		out.Note += ", " + lasted(*p.ETASeconds) + " left"
	}
	if p.Waiting != "" {
		out.Note = "waiting: " + p.Waiting + ", " + out.Note
	}
	return out
}

// notCompleted is the error for a job that ended otherwise.
func notCompleted(j client.Job) error {
	if j.Status == jobs.Completed {
		return nil
	}
	return fmt.Errorf("job %s %s", j.ID, endText(j))
}

// endText describes the final state of a job.
func endText(j client.Job) string {
	if j.ErrorMessage != "" {
		return string(j.Status) + ": " + j.ErrorMessage
	}
	return string(j.Status)
}
