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

// otherEvents adds the events of what is not a job.
type otherEvents struct {
	events *event.Stream
	logger *slog.Logger
}

// siteJudged adds the event that a site is not healthy, or healthy again, after
// a job, once for each job.
func (o otherEvents) siteJudged(ctx context.Context, h report.Health, before report.HealthStatus) error {
	what := "site.unhealthy"
	switch {
	case h.Status != report.Healthy:
	case before.Severity() > report.Healthy.Severity():
		what = "site.recovered"
	default:
		return nil
	}
	if _, err := o.events.Add(ctx, what, h.JobID, h.JobID, h); err != nil {
		return fmt.Errorf("site %s is %s: %w", h.Site, h.Status, err)
	}
	return nil
}

// breakerChanged adds the event that a breaker has opened or closed.
func (o otherEvents) breakerChanged(ctx context.Context, s limit.BreakerState) {
	what := "breaker.opened"
	if s.State == "closed" {
		what = "breaker.closed"
	}
	if _, err := o.events.Add(ctx, what, "", "", s); err != nil && ctx.Err() == nil {
		o.logger.WarnContext(ctx, "an event of a breaker is missing", "event", what, "key", s.Key, "err", err)
	}
}

// agentChanged adds the event that an agent has registered or was removed.
func (o otherEvents) agentChanged(ctx context.Context, what string, a agent.Agent) {
	if _, err := o.events.Add(ctx, what, "", "", a); err != nil && ctx.Err() == nil {
		o.logger.WarnContext(ctx, "an event of an agent is missing", "event", what, "agent", a.ID, "err", err)
	}
}
