package client

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"mime/multipart"
	"net/http"
	"net/url"
	"time"

	"muster/jobs"
	"muster/jobs/report"
)

// Job is a job with the numbers that clients use most.
type Job struct {
	jobs.Job
	JobID           string           `json:"job_id" doc:"the same as id"`
	CreatorStatus   jobs.StageStatus `json:"creator_status,omitempty" doc:"of the stage create"`
	ValidatorStatus jobs.StageStatus `json:"validator_status,omitempty" doc:"of the stage validate"`
	TotalTokens     int64            `json:"total_tokens"`
	TotalRequests   int64            `json:"total_requests"`
	Percent         float64          `json:"progress_percent" doc:"share of the items that are in a final state"`
	Duplicate       bool             `json:"duplicate,omitempty" doc:"the job is an earlier one with the same work"`
}

// NewJob is a job to create.
type NewJob struct {
	Prompt      string    `json:"prompt" cli:"prompt" pattern:"\\S" patternDescription:"text that is not blank" maxLength:"1048576" doc:"instructions for the agents" example:"List the requirements of this document"`
	Pipeline    string    `json:"pipeline,omitempty" cli:"arg" maxLength:"100" doc:"Defaults to default." example:"default"`
	Context     Object    `json:"context,omitempty" cli:"context" doc:"data for the agents; lists of jobs can be filtered by the keys that the pipeline declares"`
	DocumentURL string    `json:"document_url,omitempty" maxLength:"2000" pattern:"^https?://" patternDescription:"an http or https URL" doc:"address from which the document is downloaded"`
	Priority    int       `json:"priority,omitempty" minimum:"-100" maximum:"100" doc:"a step is worth a minute of waiting"`
	Labels      []string  `json:"labels,omitempty" cli:"label" maxItems:"20" minLength:"1" maxLength:"100" doc:"labels by which lists of jobs can be filtered"`
	After       []string  `json:"after,omitempty" cli:"after" maxItems:"100" maxLength:"100" doc:"IDs of jobs that must end before this job starts"`
	OnFailure   string    `json:"on_failure,omitempty" cli:"on-failure" enum:"cancel,run" doc:"action if a job of after does not complete. Defaults to cancel."`
	At          time.Time `json:"at,omitzero" cli:"at" doc:"time at which the job begins. Defaults to now."`
	StuckAfter  string    `json:"stuck_after,omitempty" maxLength:"20" doc:"duration without progress after which the job is stuck" example:"5m"`
	VersionOf   string    `json:"version_of,omitempty" cli:"version-of" maxLength:"100" doc:"the job of which this is the next version"`
	Dedupe      string    `json:"dedupe,omitempty" cli:"dedupe" enum:"allow,join,reject" doc:"action if an unfinished job has the same work. Defaults to the setting jobs.dedupe."`
}

// JobEdit changes a job. Absent fields are not changed.
type JobEdit struct {
	Priority *int      `json:"priority,omitempty" minimum:"-100" maximum:"100" doc:"a step is worth a minute of waiting"`
	Context  Object    `json:"context,omitempty" doc:"replaces the context"`
	Labels   *[]string `json:"labels,omitempty" maxItems:"20" minLength:"1" maxLength:"100"`
}

// CancelledJob is the result of a cancel.
type CancelledJob struct {
	Success bool        `json:"success"`
	JobID   string      `json:"job_id"`
	Status  jobs.Status `json:"status,omitempty"`
	Cleanup bool        `json:"cleanup" doc:"the document was removed: no other job has it"`
}

// JobRetry selects the failed items of a job that are retried.
type JobRetry struct {
	Keys []string `json:"keys,omitempty" maxItems:"10000" minLength:"1" maxLength:"512" doc:"keys of the items. Defaults to all that failed."`
}

// RetriedJob is the result of a retry.
type RetriedJob struct {
	JobID   string `json:"job_id"`
	Retried int    `json:"retried" doc:"items and stages that run again"`
}

// Decision decides the review of one item.
type Decision struct {
	Accept bool   `json:"accept" doc:"true: the item goes to its next stage, or is integrated by its last one; false: it is rejected"`
	Reason string `json:"reason,omitempty" cli:"reason" maxLength:"10000" doc:"required to reject"`
	Item   Object `json:"item,omitempty" cli:"set" doc:"fields of the item to correct"`
}

// Decisions decides the review of several items of a job.
type Decisions struct {
	Keys   []string `json:"keys,omitempty" maxItems:"10000" minLength:"1" maxLength:"512" doc:"keys of the items. Defaults to all in review."`
	Accept bool     `json:"accept" doc:"true: the items go to their next stage, or are integrated by their last one; false: they are rejected"`
	Reason string   `json:"reason,omitempty" maxLength:"10000" doc:"required to reject"`
}

// DecidedItems is the result of Decisions.
type DecidedItems struct {
	Decided int `json:"decided" doc:"number of items that were in review"`
}

// Comparison has the differences between the items of two jobs.
type Comparison struct {
	A           string            `json:"a" doc:"id of the earlier job"`
	B           string            `json:"b" doc:"id of the later job"`
	Differences []jobs.Difference `json:"differences"`
	Counts      map[string]int64  `json:"counts" doc:"number of items that are new, gone, changed and same"`
}

// JobReport is the report of a job in JSON.
type JobReport struct {
	report.Summary
	Items []jobs.Item `json:"item_list"`
}

// JobPath is the path of a job.
type JobPath struct {
	ID string `path:"id" maxLength:"100" pattern:"^[A-Za-z0-9][A-Za-z0-9_.-]*$" patternDescription:"the id of a job, as in 0f0e6b1c-6c5e-4b7e-9f49-0a4b2f6f3d11" doc:"id of the job" example:"0f0e6b1c-6c5e-4b7e-9f49-0a4b2f6f3d11"`
}

// JobFilter selects jobs.
type JobFilter struct {
	Status  []string `query:"status,explode" enum:"created,processing,completed,failed,cancelled,pending" maxItems:"6" doc:"any of these; pending selects jobs with a pending stage; may be repeated"`
	Name    string   `query:"name" cli:"arg" maxLength:"200" doc:"name of the pipeline"`
	Label   string   `query:"label" maxLength:"100" doc:"only jobs with this label"`
	Context []string `query:"context,explode" cli:"where" maxItems:"10" maxLength:"1101" pattern:"^[A-Za-z0-9_.-]{1,100}=" patternDescription:"KEY=VALUE" doc:"KEY=VALUE in the context, for a key that the pipeline declares; may be repeated" example:"customer=acme"`
	Cursor  string   `query:"cursor" maxLength:"500" doc:"next of the previous page"`
	Offset  int      `query:"offset" default:"0" minimum:"0" maximum:"10000" doc:"number of jobs to skip; use a cursor for more"`
	Limit   int      `query:"limit" default:"50" minimum:"1" maximum:"1000" doc:"jobs of a page"`
}

// ItemFilter selects items of a job.
type ItemFilter struct {
	JobPath
	Status string `query:"status" enum:"pending,validating,integrated,rejected,failed,review"`
	Cursor string `query:"cursor" maxLength:"500" doc:"next of the previous page. A page can be short or empty although others follow."`
	Limit  int    `query:"limit" default:"100" minimum:"1" maximum:"1000"`
}

// ItemPath is the path of an item.
type ItemPath struct {
	JobPath
	Key string `path:"key" minLength:"1" maxLength:"512" doc:"key of the item" example:"req-17"`
}

// ItemDecision is the input of DecideItem.
type ItemDecision struct {
	ItemPath
	Body Decision
}

// ItemDecisions is the input of DecideItems.
type ItemDecisions struct {
	JobPath
	Body Decisions
}

// ReviewFilter selects reviews.
type ReviewFilter struct {
	Limit int `query:"limit" default:"100" minimum:"1" maximum:"1000" doc:"number of items"`
}

// DayFilter selects days.
type DayFilter struct {
	Days int `query:"days" default:"7" minimum:"1" maximum:"30" doc:"number of days, including today"`
}

// JobChange is the input of EditJob.
type JobChange struct {
	JobPath
	IfMatch string `header:"If-Match" required:"true" maxLength:"40" doc:"the version that the change was made for, as in the ETag of the job" example:"\"3\""`
	Body    JobEdit
}

// JobCancel is the input of CancelJob.
type JobCancel struct {
	JobPath
	Cleanup bool `query:"cleanup" doc:"remove the document of the job too"`
}

// JobRetrial is the input of RetryJob.
type JobRetrial struct {
	JobPath
	Body *JobRetry
}

// StagePath is the path of a stage of a job.
type StagePath struct {
	JobPath
	Stage string `path:"stage" maxLength:"100" pattern:"^[A-Za-z0-9][A-Za-z0-9._-]*$" patternDescription:"the name of a stage" doc:"name of the stage" example:"create"`
}

// StageFail is the input of FailStage.
type StageFail struct {
	StagePath
	Body struct {
		Error string `json:"error" pattern:"\\S" patternDescription:"text that is not blank" maxLength:"10000" doc:"why"`
	} `nameHint:"StageFailure"`
}

// JobComparison is the input of CompareJobs.
type JobComparison struct {
	JobPath
	Other string `path:"other" maxLength:"100" pattern:"^[A-Za-z0-9][A-Za-z0-9_.-]*$" patternDescription:"the id of a job" doc:"id of the later job"`
	Same  bool   `query:"same" doc:"include items without differences"`
}

// Operations on jobs; see also Client.CreateJob, Client.WriteJobReport and Client.Events.
var (
	ListJobs       = Declare[JobFilter, Page[Job]]("GET /v1/jobs", "listJobs", "jobs", "List jobs, the newest first")
	ListStuckJobs  = Declare[None, Page[jobs.Stuck]]("GET /v1/jobs/stuck", "listStuckJobs", "jobs", "List the jobs without progress")
	ListJobDays    = Declare[DayFilter, Page[jobs.Day]]("GET /v1/jobs/daily", "listJobDays", "jobs", "Count the jobs of each day, by status")
	GetJob         = Declare[JobPath, Job]("GET /v1/jobs/{id}", "getJob", "jobs", "Get a job", forReaders, Fails(http.StatusNotFound))
	GetJobProgress = Declare[JobPath, jobs.Progress]("GET /v1/jobs/{id}/progress", "getJobProgress", "jobs", "Get the progress of a job, and an estimate of the remaining time", Fails(http.StatusNotFound))
	CompareJobs    = Declare[JobComparison, Comparison]("GET /v1/jobs/{id}/compare/{other}", "compareJobs", "jobs", "Compare the items of two jobs", Fails(http.StatusNotFound))

	EditJob   = Declare[JobChange, Job]("PATCH /v1/jobs/{id}", "editJob", "jobs", "Change the priority, context or labels of a job", Fails(http.StatusNotFound, http.StatusConflict, http.StatusPreconditionFailed))
	DeleteJob = Declare[JobPath, None]("DELETE /v1/jobs/{id}", "deleteJob", "jobs", "Delete a job that has ended, with its items", ofEnded)
	CancelJob = Declare[JobCancel, CancelledJob]("POST /v1/jobs/{id}/cancel", "cancelJob", "jobs", "Cancel a job", ofEnded, Says("Integrated items are kept."))
	RetryJob  = Declare[JobRetrial, RetriedJob]("POST /v1/jobs/{id}/retry", "retryJob", "jobs", "Run the failed items of a job again", ofEnded,
		Says("A completed or failed job is reopened: its finished items are kept, and its state is processing until the others finish."))
	RerunJob = Declare[JobPath, Job]("POST /v1/jobs/{id}/rerun", "rerunJob", "jobs", "Create the next version of a job, with the same request", ofEnded, Returns(http.StatusCreated))
	PauseJob = Declare[JobPath, Job]("POST /v1/jobs/{id}/pause", "pauseJob", "jobs", "Pause a job", ofEnded,
		Says("No agent gets its work until it is resumed. Agents complete the assignments that they hold."))
	ResumeJob     = Declare[JobPath, Job]("POST /v1/jobs/{id}/resume", "resumeJob", "jobs", "Resume a paused job", ofEnded)
	CompleteStage = Declare[StagePath, Job]("POST /v1/jobs/{id}/stages/{stage}/complete", "completeStage", "jobs", "Complete a stage of a job, as an operator", ofEnded)
	FailStage     = Declare[StageFail, Job]("POST /v1/jobs/{id}/stages/{stage}/fail", "failStage", "jobs", "Fail a stage of a job, as an operator", ofEnded)

	ListItems   = Declare[ItemFilter, Page[jobs.Item]]("GET /v1/jobs/{id}/items", "listItems", "items", "List the items of a job", forReaders, Fails(http.StatusNotFound))
	GetItem     = Declare[ItemPath, jobs.Item]("GET /v1/jobs/{id}/items/{key}", "getItem", "items", "Get an item of a job", forReaders, Fails(http.StatusNotFound))
	DecideItem  = Declare[ItemDecision, jobs.Item]("POST /v1/jobs/{id}/items/{key}/decide", "decideItem", "items", "Accept or reject an item that waits for review", ofEnded)
	DecideItems = Declare[ItemDecisions, DecidedItems]("POST /v1/jobs/{id}/decisions", "decideItems", "items", "Accept or reject several items that wait for review", ofEnded, Returns(http.StatusOK))
	ListReviews = Declare[ReviewFilter, Page[jobs.Item]]("GET /v1/reviews", "listReviews", "items", "List items that wait for a decision, of all jobs")
)

// ofEnded adds the problems of a change that the state of a job may not allow.
var ofEnded = Fails(http.StatusNotFound, http.StatusConflict)

func jobPath(id string, more ...string) string {
	path := "/v1/jobs/" + url.PathEscape(id)
	for _, part := range more {
		path += "/" + url.PathEscape(part)
	}
	return path
}

// CreateJob creates a job. The same idempotency key returns the same job for 24 hours; "" means none. document has the
// content of the document name; nil means none.
func (c *Client) CreateJob(ctx context.Context, n NewJob, key, name string, document io.Reader) (j Job, err error) {
	fields, err := json.Marshal(n)
	if err != nil {
		return j, fmt.Errorf("encode the job: %w", err)
	}
	header := http.Header{}
	if key != "" {
		header.Set("Idempotency-Key", key)
	}
	media, body := jsonType, io.Reader(bytes.NewReader(fields))
	if document != nil {
		reader, writer := io.Pipe()
		defer reader.Close() // stops the goroutine
		form := multipart.NewWriter(writer)
		media, body = form.FormDataContentType(), reader
		go func() { writer.CloseWithError(writeForm(form, fields, name, document)) }()
	}
	res, err := c.send(ctx, http.MethodPost, "/v1/jobs", nil, header, media, body)
	if err != nil {
		return j, err
	}
	return j, c.decode(res, &j)
}

// writeForm writes the fields of a job, given as JSON, and its document.
func writeForm(form *multipart.Writer, fields []byte, name string, document io.Reader) error {
	var values map[string]any
	if err := json.Unmarshal(fields, &values); err != nil {
		return err
	}
	for name, value := range values {
		list, ok := value.([]any)
		if !ok {
			list = []any{value}
		}
		for _, v := range list {
			text, ok := v.(string)
			if !ok {
				raw, err := json.Marshal(v)
				if err != nil {
					return err
				}
				text = string(raw)
			}
			if err := form.WriteField(name, text); err != nil {
				return err
			}
		}
	}
	file, err := form.CreateFormFile("document", name)
	if err != nil {
		return err
	}
	if _, err := io.Copy(file, document); err != nil {
		return err
	}
	return form.Close()
}

// WriteJobReport writes the report of a job to w, as text, json or csv.
func (c *Client) WriteJobReport(ctx context.Context, w io.Writer, id, format string) error {
	accept := http.Header{"Accept": {map[string]string{"text": "text/plain", "csv": "text/csv"}[format]}}
	res, err := c.send(ctx, http.MethodGet, jobPath(id, "report"), url.Values{"format": {format}}, accept, "", nil)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if _, err := io.Copy(w, res.Body); err != nil {
		return fmt.Errorf("read the report of job %s: %w", id, err)
	}
	return nil
}

// Pipeline is a named list of stages.
type Pipeline struct {
	Name        string          `json:"name" example:"default"`
	Description string          `json:"description,omitempty"`
	Stages      []PipelineStage `json:"stages"`
	StuckAfter  string          `json:"stuck_after,omitempty" doc:"a duration without progress"`
	Timeout     string          `json:"timeout,omitempty" doc:"of a job"`
	Labels      []string        `json:"labels,omitempty" doc:"booleans that items may carry"`
	Context     []string        `json:"context,omitempty" doc:"keys of the context by which jobs can be found"`
}

// PipelineStage is a step of a pipeline, which takes the job or each of its items.
type PipelineStage struct {
	Name       string            `json:"name"`
	Role       string            `json:"role,omitempty" doc:"of the agents that do it"`
	Task       string            `json:"task,omitempty" doc:"the Go task that does it"`
	Takes      string            `json:"takes" enum:"job,item"`
	States     map[string]string `json:"states,omitempty" doc:"state of the item by verdict"`
	Timeout    string            `json:"timeout,omitempty" doc:"of one assignment"`
	MaxRetries *int              `json:"max_retries,omitempty" minimum:"0" doc:"how often an item that failed is retried"`
	Review     bool              `json:"review,omitempty" doc:"failed items wait for a decision by a person"`
}

// PipelinePath is the path of a pipeline.
type PipelinePath struct {
	Name string `path:"name" maxLength:"100" pattern:"^[A-Za-z0-9][A-Za-z0-9._-]*$" patternDescription:"the name of a pipeline" doc:"name of the pipeline" example:"default"`
}

// Operations on pipelines.
var (
	ListPipelines = Declare[None, Page[Pipeline]]("GET /v1/pipelines", "listPipelines", "pipelines", "List the pipelines", forReaders)
	GetPipeline   = Declare[PipelinePath, Pipeline]("GET /v1/pipelines/{name}", "getPipeline", "pipelines", "Get a pipeline", forReaders, Fails(http.StatusNotFound))
)
