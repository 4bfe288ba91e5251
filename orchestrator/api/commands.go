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

type editInput struct {
	JobPath
	IfMatch string `header:"If-Match" required:"true" maxLength:"40" doc:"the version that the change was made for, as in the ETag of the job" example:"\"3\""`
	Body    client.JobEdit
}

type cancelInput struct {
	JobPath
	Cleanup bool `query:"cleanup" doc:"remove the document of the job too"`
}

type retryInput struct {
	JobPath
	Body *client.JobRetry
}

type stageInput struct {
	JobPath
	Stage string `path:"stage" maxLength:"100" pattern:"^[A-Za-z0-9][A-Za-z0-9._-]*$" doc:"name of the stage" example:"create"`
}

type stageFailInput struct {
	JobPath
	Stage string `path:"stage" maxLength:"100" pattern:"^[A-Za-z0-9][A-Za-z0-9._-]*$" doc:"name of the stage" example:"create"`
	Body  struct {
		Error string `json:"error" pattern:"\\S" patternDescription:"text that is not blank" maxLength:"10000" doc:"why"`
	} `nameHint:"StageFailure"`
}

// jobCommands changes jobs.
type jobCommands struct{ jobs *jobs.Service }

// addJobCommands adds the operations that change jobs.
func addJobCommands(s *server) {
	c := jobCommands{s.cfg.Jobs}
	op := describe(s, http.MethodPatch, "/v1/jobs/{id}", "editJob", tagJobs, "Change the priority, context or labels of a job",
		http.StatusNotFound, http.StatusConflict, http.StatusPreconditionFailed)
	route(s, op, maxBody, c.edit)

	op = describe(s, http.MethodDelete, "/v1/jobs/{id}", "deleteJob", tagJobs, "Delete a job that has ended, with its items", http.StatusNotFound, http.StatusConflict)
	route(s, op, 0, func(ctx context.Context, in *JobPath) (*nothing, error) { return nil, c.jobs.Delete(ctx, in.ID) })
	op = describe(s, http.MethodDelete, "/jobs/{id}", "cancelJobByDelete", tagJobs, "Cancel a job", http.StatusNotFound, http.StatusConflict)
	op.Description = "The same as POST /v1/jobs/{id}/cancel."
	op.DefaultStatus = http.StatusOK
	route(s, op, 0, body(c.cancel))
	op = describe(s, http.MethodPost, "/jobs/{id}/cancel", "cancelJob", tagJobs, "Cancel a job", http.StatusNotFound, http.StatusConflict)
	op.Description = "Integrated items are kept."
	routeBoth(s, op, 0, body(c.cancel))

	op = describe(s, http.MethodPost, "/v1/jobs/{id}/retry", "retryJob", tagJobs, "Run the failed items of a job again", http.StatusNotFound, http.StatusConflict)
	op.Description = "A completed or failed job is reopened: its finished items are kept, and its state is processing until the others finish."
	route(s, op, maxBody, body(c.retry))
	op = describe(s, http.MethodPost, "/v1/jobs/{id}/rerun", "rerunJob", tagJobs, "Create the next version of a job, with the same request", http.StatusNotFound, http.StatusConflict)
	op.DefaultStatus = http.StatusCreated
	route(s, op, 0, func(ctx context.Context, in *JobPath) (*createOutput, error) {
		j, err := c.jobs.Rerun(ctx, in.ID)
		return &createOutput{Status: http.StatusCreated, Location: "/v1/jobs/" + j.ID, Body: viewOf(j)}, err
	})

	op = describe(s, http.MethodPost, "/v1/jobs/{id}/pause", "pauseJob", tagJobs, "Pause a job", http.StatusNotFound, http.StatusConflict)
	op.Description = "No agent gets its work until it is resumed. Agents complete the assignments that they hold."
	route(s, op, 0, func(ctx context.Context, in *JobPath) (*jobOutput, error) { return changed(c.jobs.Pause(ctx, in.ID)) })
	op = describe(s, http.MethodPost, "/v1/jobs/{id}/resume", "resumeJob", tagJobs, "Resume a paused job", http.StatusNotFound, http.StatusConflict)
	route(s, op, 0, func(ctx context.Context, in *JobPath) (*jobOutput, error) { return changed(c.jobs.Resume(ctx, in.ID)) })

	op = describe(s, http.MethodPost, "/v1/jobs/{id}/stages/{stage}/complete", "completeStage", tagJobs, "Complete a stage of a job, as an operator", http.StatusNotFound, http.StatusConflict)
	route(s, op, 0, func(ctx context.Context, in *stageInput) (*jobOutput, error) {
		return c.endStage(ctx, in.ID, in.Stage, "")
	})
	op = describe(s, http.MethodPost, "/v1/jobs/{id}/stages/{stage}/fail", "failStage", tagJobs, "Fail a stage of a job, as an operator", http.StatusNotFound, http.StatusConflict)
	route(s, op, maxBody, func(ctx context.Context, in *stageFailInput) (*jobOutput, error) {
		return c.endStage(ctx, in.ID, in.Stage, in.Body.Error)
	})
}

// entityTag is a version as the header If-Match has it.
var entityTag = regexp.MustCompile(`^(?:W/)?"?([0-9]{1,18})"?$`)

func (c jobCommands) edit(ctx context.Context, in *editInput) (*jobOutput, error) {
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

func (c jobCommands) cancel(ctx context.Context, in *cancelInput) (out client.CancelledJob, err error) {
	j, cleaned, err := c.jobs.Cancel(ctx, in.ID, in.Cleanup)
	return client.CancelledJob{Success: err == nil, JobID: in.ID, Status: j.Status, Cleanup: cleaned}, err
}

func (c jobCommands) retry(ctx context.Context, in *retryInput) (client.RetriedJob, error) {
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

func (c jobCommands) endStage(ctx context.Context, id, stage, failure string) (*jobOutput, error) {
	return changed(c.jobs.CompleteStage(ctx, id, stage, failure))
}
