package orchestrator

import (
	"context"
	"fmt"
	"log/slog"

	"muster/jobs/agent"
	"muster/orchestrator/event"
	"muster/sites/report"
	"muster/tasks/limit"
)

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
