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
	"slices"
	"strconv"
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
	Prompt      string    `json:"prompt" pattern:"\\S" patternDescription:"text that is not blank" maxLength:"1048576" doc:"instructions for the agents" example:"List the requirements of this document"`
	Pipeline    string    `json:"pipeline,omitempty" maxLength:"100" doc:"Defaults to default." example:"default"`
	Context     Object    `json:"context,omitempty" doc:"data for the agents; lists of jobs can be filtered by the keys that the pipeline declares"`
	DocumentURL string    `json:"document_url,omitempty" maxLength:"2000" pattern:"^https?://" doc:"address from which the document is downloaded"`
	Priority    int       `json:"priority,omitempty" minimum:"-100" maximum:"100" doc:"a step is worth a minute of waiting"`
	Labels      []string  `json:"labels,omitempty" maxItems:"20" minLength:"1" maxLength:"100" doc:"labels by which lists of jobs can be filtered"`
	After       []string  `json:"after,omitempty" maxItems:"100" maxLength:"100" doc:"IDs of jobs that must end before this job starts"`
	OnFailure   string    `json:"on_failure,omitempty" enum:"cancel,run" doc:"action if a job of after does not complete. Defaults to cancel."`
	At          time.Time `json:"at,omitzero" doc:"time at which the job begins. Defaults to now."`
	Cron        string    `json:"cron,omitempty" maxLength:"200" doc:"creates a job with this request at these times, in UTC without the prefix CRON_TZ=" example:"CRON_TZ=Europe/Sofia 0 6 * * 1"`
	StuckAfter  string    `json:"stuck_after,omitempty" maxLength:"20" doc:"duration without progress after which the job is stuck" example:"5m"`
	VersionOf   string    `json:"version_of,omitempty" maxLength:"100" doc:"the job of which this is the next version"`
	Dedupe      string    `json:"dedupe,omitempty" enum:"allow,join,reject" doc:"action if an unfinished job has the same work. Defaults to the setting jobs.dedupe."`
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
	Reason string `json:"reason,omitempty" maxLength:"10000" doc:"required to reject"`
	Item   Object `json:"item,omitempty" doc:"fields of the item to correct"`
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

// JobFilter selects jobs. The zero value selects all.
type JobFilter struct {
	Status  []string // any of these; pending selects jobs with a pending stage
	Name    string   // of the pipeline, site or queue
	Label   string
	Context []string // KEY=VALUE in the context, for keys that pipelines declare
	Offset  int      // number of jobs to skip
	Limit   int      // Defaults to 50.
}

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

// Jobs lists jobs, the newest first.
func (c *Client) Jobs(ctx context.Context, f JobFilter) ([]Job, error) {
	limit := f.Limit
	if limit <= 0 {
		limit = 50
	}
	query := filled("name", f.Name, "label", f.Label, "limit", strconv.Itoa(min(limit, 1000)))
	query["status"], query["context"] = f.Status, f.Context
	if f.Offset != 0 {
		query.Set("offset", strconv.Itoa(f.Offset))
	}
	return all[Job](ctx, c, "/v1/jobs", query, limit)
}

// StuckJobs lists the jobs without progress.
func (c *Client) StuckJobs(ctx context.Context) ([]jobs.Stuck, error) {
	return all[jobs.Stuck](ctx, c, "/v1/jobs/stuck", nil, 0)
}

// JobDays returns the numbers of jobs of the last days, 1 to 30, the newest first.
func (c *Client) JobDays(ctx context.Context, days int) ([]jobs.Day, error) {
	return all[jobs.Day](ctx, c, "/v1/jobs/daily", url.Values{"days": {strconv.Itoa(days)}}, 0)
}

// Job returns a job.
func (c *Client) Job(ctx context.Context, id string) (j Job, err error) {
	err = c.do(ctx, http.MethodGet, jobPath(id), nil, nil, &j)
	return j, err
}

// JobProgress returns the progress of a job.
func (c *Client) JobProgress(ctx context.Context, id string) (p jobs.Progress, err error) {
	err = c.do(ctx, http.MethodGet, jobPath(id, "progress"), nil, nil, &p)
	return p, err
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

// CompareJobs compares the items of two jobs. same includes the items without differences.
func (c *Client) CompareJobs(ctx context.Context, a, b string, same bool) (out Comparison, err error) {
	query := url.Values{"same": {strconv.FormatBool(same)}}
	err = c.do(ctx, http.MethodGet, jobPath(a, "compare", b), query, nil, &out)
	return out, err
}

// CancelJob cancels a job. cleanup removes its document, unless another job has it.
func (c *Client) CancelJob(ctx context.Context, id string, cleanup bool) (r CancelledJob, err error) {
	query := url.Values{"cleanup": {strconv.FormatBool(cleanup)}}
	err = c.do(ctx, http.MethodPost, jobPath(id, "cancel"), query, nil, &r)
	return r, err
}

// DeleteJob deletes a job that has ended, with its items.
func (c *Client) DeleteJob(ctx context.Context, id string) error {
	return c.do(ctx, http.MethodDelete, jobPath(id), nil, nil, nil)
}

// RetryJob retries the failed items with keys, or all failed items. A finished job is reopened.
func (c *Client) RetryJob(ctx context.Context, id string, keys ...string) (r RetriedJob, err error) {
	err = c.do(ctx, http.MethodPost, jobPath(id, "retry"), nil, JobRetry{Keys: keys}, &r)
	return r, err
}

// RerunJob creates the next version of a job, with the same request.
func (c *Client) RerunJob(ctx context.Context, id string) (j Job, err error) {
	err = c.do(ctx, http.MethodPost, jobPath(id, "rerun"), nil, nil, &j)
	return j, err
}

// PauseJob pauses a job: no agent gets its work.
func (c *Client) PauseJob(ctx context.Context, id string) (j Job, err error) {
	err = c.do(ctx, http.MethodPost, jobPath(id, "pause"), nil, nil, &j)
	return j, err
}

// ResumeJob resumes a paused job.
func (c *Client) ResumeJob(ctx context.Context, id string) (j Job, err error) {
	err = c.do(ctx, http.MethodPost, jobPath(id, "resume"), nil, nil, &j)
	return j, err
}

// Items lists items of a job in one state, or in any when it is "", from a cursor on. next is the cursor of the rest, or "".
func (c *Client) Items(ctx context.Context, id string, status jobs.ItemStatus, cursor string, limit int) (items []jobs.Item, next string, err error) {
	query := url.Values{}
	if status != "" {
		query.Set("status", string(status))
	}
	items, next = []jobs.Item{}, cursor
	for len(items) < limit { // a page may be short
		query.Set("limit", strconv.Itoa(min(limit-len(items), 1000)))
		if next != "" {
			query.Set("cursor", next)
		}
		var page Page[jobs.Item]
		if err := c.do(ctx, http.MethodGet, jobPath(id, "items"), query, nil, &page); err != nil {
			return nil, "", err
		}
		items = slices.Concat(items, page.Data)
		if next = page.Next; next == "" {
			break
		}
	}
	return items, next, nil
}

// Reviews lists items that wait for a decision, of all jobs.
func (c *Client) Reviews(ctx context.Context, limit int) ([]jobs.Item, error) {
	return all[jobs.Item](ctx, c, "/v1/reviews", url.Values{"limit": {strconv.Itoa(limit)}}, 0)
}

// DecideItem decides the review of an item.
func (c *Client) DecideItem(ctx context.Context, id, key string, d Decision) (it jobs.Item, err error) {
	err = c.do(ctx, http.MethodPost, jobPath(id, "items", key, "decide"), nil, d, &it)
	return it, err
}

// DecideItems decides the review of several items.
func (c *Client) DecideItems(ctx context.Context, id string, d Decisions) (r DecidedItems, err error) {
	err = c.do(ctx, http.MethodPost, jobPath(id, "decisions"), nil, d, &r)
	return r, err
}
