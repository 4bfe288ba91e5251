// Package report writes reports of jobs: numbers as a text or as JSON,
// and all of its items as JSON or CSV. It reads the items one after the other
// and keeps none of them, so a job may have any number.
package report

import (
	"context"
	"encoding/json"
	"time"

	"muster/internal/wrap"
	"muster/jobs"
)

// Source is where jobs and items are read from; *jobs.Service is one.
type Source interface {
	// Get returns a job. The error wraps job.ErrNotFound if there is none.
	Get(ctx context.Context, id string) (jobs.Job, error)
	// EachItem calls yield for each item of a job, until yield returns an error, which it returns.
	EachItem(ctx context.Context, id string, yield func(jobs.Item) error) error
}

// Summary is the result of a job. For an unfinished job it is a snapshot: items that change while they are read may
// be missing in the breakdowns or be counted with an earlier state.
type Summary struct {
	JobID           string                      `json:"job_id"`
	Kind            string                      `json:"kind"`
	Name            string                      `json:"name"` // of the pipeline, the site or the queue
	Prompt          string                      `json:"prompt"`
	Status          jobs.Status                 `json:"status"`
	CreatorStatus   jobs.StageStatus            `json:"creator_status,omitempty"`   // of the stage create, if there is one
	ValidatorStatus jobs.StageStatus            `json:"validator_status,omitempty"` // of the stage validate, if there is one
	Stages          []jobs.Stage                `json:"stages"`
	CreatedAt       time.Time                   `json:"created_at"`
	CompletedAt     time.Time                   `json:"completed_at,omitzero"`
	DurationSeconds float64                     `json:"duration_seconds"` // from its creation to its end, or until now
	DocumentPath    string                      `json:"document_path,omitempty"`
	Items           jobs.Counts                 `json:"items"`
	Percent         float64                     `json:"progress_percent"`
	ByPriority      Priorities                  `json:"by_priority"`
	ByLabel         map[string]int64            `json:"by_label"` // items that have the label; all labels of the pipeline are there
	ByAgent         map[string]jobs.Counts      `json:"by_agent"` // items by the agent that works on them, or ended them
	Usage           map[string]int64            `json:"usage"`
	UsageByAgent    map[string]map[string]int64 `json:"usage_by_agent"`
	Citations       Citations                   `json:"citations"`
	IntegratedIDs   []string                    `json:"integrated_ids"` // the first 1000: external ids, or keys of items without one
	ErrorMessage    string                      `json:"error_message,omitempty"`
	ErrorDetails    json.RawMessage             `json:"error_details,omitempty"`
}

// Priorities are the items by priority.
type Priorities struct {
	High   jobs.Counts `json:"high"`
	Medium jobs.Counts `json:"medium"` // also items without a priority
	Low    jobs.Counts `json:"low"`
}

// Citations counts the citations of items.
type Citations struct {
	Total   int64    `json:"total"`
	Unique  int64    `json:"unique"`
	AtLeast bool     `json:"unique_is_at_least,omitempty"` // there are more than Unique, because distinct citations are bounded
	IDs     []string `json:"ids"`                          // the first 100 unique ones
}

// Summarize reads a job and its items.
func Summarize(ctx context.Context, src Source, id string) (Summary, error) {
	j, err := get(ctx, src, id)
	if err != nil {
		return Summary{}, err
	}
	return collect(ctx, src, j, func(jobs.Item) error { return nil })
}

func get(ctx context.Context, src Source, id string) (jobs.Job, error) {
	j, err := src.Get(ctx, id)
	return j, wrap.Err(err, "report on job %s", id)
}

// collect summarizes a job, and gives each of its items to yield.
func collect(ctx context.Context, src Source, j jobs.Job, yield func(jobs.Item) error) (Summary, error) {
	c := newCollector(j)
	err := eachItem(ctx, src, j, func(it jobs.Item) error {
		c.add(it)
		return yield(it)
	})
	if err != nil {
		return Summary{}, err
	}
	return c.Summary, nil
}

// eachItem gives the items of a job to yield.
func eachItem(ctx context.Context, src Source, j jobs.Job, yield func(jobs.Item) error) error {
	return wrap.Err(src.EachItem(ctx, j.ID, yield), "report on the items of job %s", j.ID)
}
