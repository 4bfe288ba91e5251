package api

import (
	"context"
	"encoding/json"
	"net/http"
	"regexp"
	"strconv"

	"muster/jobs"
	"muster/orchestrator/api/client"
)

// jobCommands changes jobs.
type jobCommands struct{ jobs *jobs.Service }

// addJobCommands adds the operations that change jobs.
func addJobCommands(s *server) {
	c := jobCommands{s.cfg.Jobs}
	implementOutput(s, client.EditJob, c.edit)
	implementNone(s, client.DeleteJob, func(ctx context.Context, in *client.JobPath) error { return c.jobs.Delete(ctx, in.ID) })
	op := describe(s, http.MethodDelete, "/jobs/{id}", "cancelJobByDelete", tagJobs, "Cancel a job", http.StatusNotFound, http.StatusConflict)
	op.Description = "The same as POST /v1/jobs/{id}/cancel."
	op.DefaultStatus = http.StatusOK
	route(s, op, 0, body(c.cancel))
	routeBoth(s, s.unversioned(client.CancelJob.Declaration), 0, body(c.cancel))
	implement(s, client.RetryJob, c.retry)
	implementOutput(s, client.RerunJob, func(ctx context.Context, in *client.JobPath) (*createOutput, error) {
		j, err := c.jobs.Rerun(ctx, in.ID)
		return &createOutput{Status: http.StatusCreated, Location: "/v1/jobs/" + j.ID, Body: viewOf(j)}, err
	})
	implementOutput(s, client.PauseJob, func(ctx context.Context, in *client.JobPath) (*jobOutput, error) {
		return changed(c.jobs.Pause(ctx, in.ID))
	})
	implementOutput(s, client.ResumeJob, func(ctx context.Context, in *client.JobPath) (*jobOutput, error) {
		return changed(c.jobs.Resume(ctx, in.ID))
	})
	implementOutput(s, client.CompleteStage, func(ctx context.Context, in *client.StagePath) (*jobOutput, error) {
		return changed(c.jobs.CompleteStage(ctx, in.ID, in.Stage, ""))
	})
	implementOutput(s, client.FailStage, func(ctx context.Context, in *client.StageFail) (*jobOutput, error) {
		return changed(c.jobs.CompleteStage(ctx, in.ID, in.Stage, in.Body.Error))
	})
}

// entityTag is a version as the header If-Match has it.
var entityTag = regexp.MustCompile(`^(?:W/)?"?([0-9]{1,18})"?$`)

func (c jobCommands) edit(ctx context.Context, in *client.JobChange) (*jobOutput, error) {
	tag := entityTag.FindStringSubmatch(in.IfMatch)
	if tag == nil {
		return nil, badField("header.If-Match", "the version of the job is expected, as in its ETag")
	}
	version, err := strconv.ParseInt(tag[1], 10, 64)
	if err != nil {
		return nil, badField("header.If-Match", "%v", err)
	}
	e := jobs.Edit{Priority: in.Body.Priority, Context: json.RawMessage(in.Body.Context), Labels: in.Body.Labels}
	j, err := c.jobs.Edit(ctx, in.ID, version, e)
	if err != nil {
		return nil, err
	}
	return outputOf(j), nil
}

func (c jobCommands) cancel(ctx context.Context, in *client.JobCancel) (out client.CancelledJob, err error) {
	j, cleaned, err := c.jobs.Cancel(ctx, in.ID, in.Cleanup)
	return client.CancelledJob{Success: err == nil, JobID: in.ID, Status: j.Status, Cleanup: cleaned}, err
}

func (c jobCommands) retry(ctx context.Context, in *client.JobRetrial) (client.RetriedJob, error) {
	var keys []string
	if in.Body != nil {
		keys = in.Body.Keys
	}
	n, err := c.jobs.Retry(ctx, in.ID, keys...)
	return client.RetriedJob{JobID: in.ID, Retried: n}, err
}

// changed returns a job that was changed.
func changed(j jobs.Job, err error) (*jobOutput, error) {
	if err != nil {
		return nil, err
	}
	return outputOf(j), nil
}
