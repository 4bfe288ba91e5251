package orchestrator

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"muster/internal/limit"
	"muster/jobs"
	"muster/jobs/agent"
	"muster/orchestrator/event"
	"muster/sites/report"
)

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

// otherEvents emits events that do not belong to a job.
type otherEvents struct {
	events *event.Stream
	logger *slog.Logger
}

// siteJudged emits the events of a scrape that has ended, each at most once: how it ended, and whether it has found its site
// unhealthy or recovered.
func (o otherEvents) siteJudged(ctx context.Context, h report.Health, before report.HealthStatus) error {
	names := []string{"scrape.failed"}
	if h.Outcome == report.StatusComplete {
		names[0] = "scrape.completed"
	}
	switch {
	case h.Status != report.Healthy:
		names = append(names, "site.unhealthy")
	case before.Severity() > report.Healthy.Severity():
		names = append(names, "site.recovered")
	}
	for _, name := range names {
		if _, err := o.events.Add(ctx, name, h.JobID, h.JobID, h); err != nil {
			return fmt.Errorf("scrape %s of %s ended as %s: %w", h.JobID, h.Site, h.Outcome, err)
		}
	}
	return nil
}

// breakerChanged emits the event that a breaker opened or closed.
func (o otherEvents) breakerChanged(ctx context.Context, s limit.BreakerState) {
	name := "breaker.opened"
	if s.State == "closed" {
		name = "breaker.closed"
	}
	if _, err := o.events.Add(ctx, name, "", "", s); err != nil && ctx.Err() == nil {
		o.logger.WarnContext(ctx, "cannot emit a breaker event", "event", name, "key", s.Key, "err", err)
	}
}

// agentChanged emits the event that an agent was registered or removed.
func (o otherEvents) agentChanged(ctx context.Context, name string, a agent.Agent) {
	if _, err := o.events.Add(ctx, name, "", "", a); err != nil && ctx.Err() == nil {
		o.logger.WarnContext(ctx, "cannot emit an agent event", "event", name, "agent", a.ID, "err", err)
	}
}

// loggedEvents are the events that an orchestrator logs, with their levels.
var loggedEvents = map[string]slog.Level{
	"scrape.completed": slog.LevelInfo, "scrape.failed": slog.LevelWarn, "site.unhealthy": slog.LevelWarn, "site.recovered": slog.LevelInfo,
	"breaker.opened": slog.LevelWarn, "breaker.closed": slog.LevelInfo, "job.completed": slog.LevelInfo, "job.failed": slog.LevelWarn,
	"job.stuck": slog.LevelWarn, "item.review": slog.LevelWarn,
}

// loggedFields are the members of the data of events that are logged.
var loggedFields = []string{"site", "outcome", "status", "records", "alerts", "key", "name", "item", "stage", "reason", "error", "error_message", "last_block"}

// logEvery is how often logEvents reads new events.
const logEvery = 2 * time.Second

// logEvents logs the results of work and changes of its state, in whichever process they happen, until ctx is done. The logs of
// worker processes are in files of their own.
func (o *Orchestrator) logEvents(ctx context.Context) {
	for after := ""; ; {
		select {
		case <-ctx.Done():
			return
		case <-time.After(logEvery):
		}
		batch, err := o.Events.Read(ctx, "", after, 1000, 0)
		if err != nil {
			continue // Redis is unavailable, which other parts log
		}
		after = batch.Next
		for _, e := range batch.Events {
			level, ok := loggedEvents[e.Type]
			if !ok {
				continue
			}
			args := []any{"at", e.Time.Local().Format(time.TimeOnly)}
			if e.Job != "" {
				args = append(args, "job", e.Job)
			}
			var data map[string]any
			_ = json.Unmarshal(e.Data, &data) // an event may have no data
			for _, name := range loggedFields {
				if value, ok := data[name]; ok && value != nil {
					args = append(args, name, value)
				}
			}
			o.opts.Logger.Log(ctx, level, e.Type, args...)
		}
	}
}
