package api

import (
	"context"
	"encoding/json"
	"net/http"
	"regexp"
	"strconv"

	"muster/jobs"
)

// JobEdit changes a job. What is absent stays as it is.
type JobEdit struct {
	Priority *int      `json:"priority,omitempty" minimum:"-100" maximum:"100" doc:"a step is worth a minute of waiting"`
	Context  Object    `json:"context,omitempty" doc:"replaces the context"`
	Labels   *[]string `json:"labels,omitempty" maxItems:"20" minLength:"1" maxLength:"100"`
}

type editInput struct {
	JobPath
	IfMatch string `header:"If-Match" required:"true" maxLength:"40" doc:"the version that the change was made for, as in the ETag of the job" example:"\"3\""`
	Body    JobEdit
}

type cancelInput struct {
	JobPath
	Cleanup bool `query:"cleanup" doc:"remove the document of the job too"`
}

type deleteInput struct {
	JobPath
	Cleanup bool `query:"cleanup" doc:"remove the document of the job too"`
	Purge   bool `query:"purge" doc:"delete a job that has ended, with its items"`
}

// CancelAnswer says what became of a job that was cancelled or deleted.
type CancelAnswer struct {
	Success bool        `json:"success"`
	JobID   string      `json:"job_id"`
	Status  jobs.Status `json:"status,omitempty"`
	Cleanup bool        `json:"cleanup" doc:"the document was removed: no other job has it"`
	Purged  bool        `json:"purged,omitempty" doc:"the job was deleted"`
}

type cancelOutput struct{ Body CancelAnswer }

type retryInput struct {
	JobPath
	Again bool `query:"again" doc:"of a job that has ended, create the next version with the same request, instead of reopening it"`
	Body  *struct {
		Items []string `json:"items,omitempty" maxItems:"10000" minLength:"1" maxLength:"512" doc:"keys of the items to retry. Defaults to all that failed."`
	} `nameHint:"Retry"`
}

// RetryAnswer says what is tried again.
type RetryAnswer struct {
	JobID   string `json:"job_id"`
	Retried int    `json:"retried" doc:"items and stages that are tried again"`
	NewJob  *Job   `json:"new_job,omitempty" doc:"the next version of a job that had ended"`
}

type retryOutput struct {
	Status int
	Body   RetryAnswer
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
type jobCommands struct{ jobs Jobs }

// addJobCommands adds what changes jobs.
func addJobCommands(s *server) {
	c := jobCommands{s.cfg.Jobs}
	op := describe(s, http.MethodPatch, "/jobs/{id}", "editJob", tagJobs, "Change the priority, context or labels of a job",
		http.StatusNotFound, http.StatusConflict, http.StatusPreconditionFailed)
	route(s, op, maxBody, c.edit)

	op = describe(s, http.MethodDelete, "/jobs/{id}", "deleteJob", tagJobs, "Cancel a job, or delete one that has ended", http.StatusNotFound, http.StatusConflict)
	op.Description = "Integrated items are kept by a cancel. purge=true deletes the job and its items."
	op.DefaultStatus = http.StatusOK
	route(s, op, 0, func(ctx context.Context, in *deleteInput) (*cancelOutput, error) {
		if !in.Purge {
			return c.cancel(ctx, in.ID, in.Cleanup)
		}
		if err := c.jobs.Delete(ctx, in.ID); err != nil {
			return nil, err
		}
		return &cancelOutput{CancelAnswer{Success: true, JobID: in.ID, Purged: true}}, nil
	})
	op = describe(s, http.MethodPost, "/jobs/{id}/cancel", "cancelJob", tagJobs, "Cancel a job", http.StatusNotFound, http.StatusConflict)
	route(s, op, 0, func(ctx context.Context, in *cancelInput) (*cancelOutput, error) {
		return c.cancel(ctx, in.ID, in.Cleanup)
	})

	op = describe(s, http.MethodPost, "/jobs/{id}/retry", "retryJob", tagJobs, "Try the failed items of a job again", http.StatusNotFound, http.StatusConflict)
	op.Description = "A job that is completed or has failed is reopened: its finished items stay, and it is processing until the others have ended."
	route(s, op, maxBody, c.retry)

	op = describe(s, http.MethodPost, "/jobs/{id}/pause", "pauseJob", tagJobs, "Pause a job", http.StatusNotFound, http.StatusConflict)
	op.Description = "No agent gets its work until it is resumed. Agents complete the assignments that they hold."
	route(s, op, 0, func(ctx context.Context, in *JobPath) (*jobOutput, error) { return changed(c.jobs.Pause(ctx, in.ID)) })
	op = describe(s, http.MethodPost, "/jobs/{id}/resume", "resumeJob", tagJobs, "Resume a paused job", http.StatusNotFound, http.StatusConflict)
	route(s, op, 0, func(ctx context.Context, in *JobPath) (*jobOutput, error) { return changed(c.jobs.Resume(ctx, in.ID)) })

	op = describe(s, http.MethodPost, "/jobs/{id}/stages/{stage}/complete", "completeStage", tagJobs, "Complete a stage of a job, as an operator", http.StatusNotFound, http.StatusConflict)
	route(s, op, 0, func(ctx context.Context, in *stageInput) (*jobOutput, error) {
		return c.endStage(ctx, in.ID, in.Stage, "")
	})
	op = describe(s, http.MethodPost, "/jobs/{id}/stages/{stage}/fail", "failStage", tagJobs, "Fail a stage of a job, as an operator", http.StatusNotFound, http.StatusConflict)
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

func (c jobCommands) cancel(ctx context.Context, id string, cleanup bool) (*cancelOutput, error) {
	j, err := c.jobs.Cancel(ctx, id, cleanup)
	if err != nil {
		return nil, err
	}
	if cleanup {
		kept, err := c.jobs.KeepsDocument(ctx, j)
		if err != nil {
			return nil, err
		}
		cleanup = !kept
	}
	return &cancelOutput{CancelAnswer{Success: true, JobID: id, Status: j.Status, Cleanup: cleanup}}, nil
}

func (c jobCommands) retry(ctx context.Context, in *retryInput) (*retryOutput, error) {
	if in.Again {
		j, err := c.jobs.Get(ctx, in.ID)
		if err != nil {
			return nil, err
		}
		if j.Status.Terminal() {
			next, err := c.jobs.Again(ctx, in.ID)
			if err != nil {
				return nil, err
			}
			view := viewOf(next)
			return &retryOutput{Status: http.StatusCreated, Body: RetryAnswer{JobID: in.ID, NewJob: &view}}, nil
		}
	}
	var keys []string
	if in.Body != nil {
		keys = in.Body.Items
	}
	n, err := c.jobs.Retry(ctx, in.ID, keys...)
	if err != nil {
		return nil, err
	}
	return &retryOutput{Status: http.StatusOK, Body: RetryAnswer{JobID: in.ID, Retried: n}}, nil
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
