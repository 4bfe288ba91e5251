package orchestrator

import (
	"context"
	"errors"
	"time"

	"muster/jobs"
	"muster/orchestrator/config"
	"muster/orchestrator/webhook"
)

// staticWebhooks returns the webhooks of the settings.
func staticWebhooks(list []config.Webhook) []webhook.Static {
	var out []webhook.Static
	for _, w := range list {
		out = append(out, webhook.Static{NewEndpoint: webhook.NewEndpoint{Name: w.Name, URL: w.URL, Events: w.Events, Workflows: w.Workflows, Labels: w.Labels, Format: w.Format}, Secrets: w.Secrets})
	}
	return out
}

// jobSummary is the job in a webhook message. It omits prompt, context and document, which may be large or confidential.
type jobSummary struct {
	ID          string      `json:"id"`
	Kind        string      `json:"kind"`
	Name        string      `json:"name"`
	Status      jobs.Status `json:"status"`
	Labels      []string    `json:"labels,omitempty"`
	Items       jobs.Counts `json:"items"`
	CreatedAt   time.Time   `json:"created_at"`
	StartedAt   time.Time   `json:"started_at,omitzero"`
	CompletedAt time.Time   `json:"completed_at,omitzero"`
	Error       string      `json:"error_message,omitempty"`
	Waiting     string      `json:"waiting,omitempty"`
	VersionOf   string      `json:"version_of,omitempty"`
}

// summarize returns the summary of a job, or nil if the job does not exist.
func summarize(ctx context.Context, service *jobs.Service, id string) (any, error) {
	j, err := service.Summary(ctx, id)
	if errors.Is(err, jobs.ErrNotFound) || errors.As(err, new(*jobs.FieldError)) { // deleted, or the ID of an unlisted scrape
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return jobSummary{
		ID: j.ID, Kind: j.Kind, Name: j.Name, Status: j.Status, Labels: j.Labels, Items: j.Items,
		CreatedAt: j.CreatedAt, StartedAt: j.StartedAt, CompletedAt: j.CompletedAt, Error: j.ErrorMessage, Waiting: j.Waiting,
		VersionOf: j.VersionOf,
	}, nil
}
