package orchestrator

import (
	"context"
	"fmt"

	"muster/orchestrator/agent"
	"muster/sites/report"
)

// siteJudged adds the event that a site is not healthy, or healthy again, after
// a job, once for each job.
func (s *System) siteJudged(ctx context.Context, h report.Health, before report.HealthStatus) error {
	what := "site.unhealthy"
	switch {
	case h.Status != report.Healthy:
	case before.Severity() > report.Healthy.Severity():
		what = "site.recovered"
	default:
		return nil
	}
	if _, err := s.Events.Add(ctx, what, h.JobID, h.JobID, h); err != nil {
		return fmt.Errorf("site %s is %s: %w", h.Site, h.Status, err)
	}
	return nil
}

// agentChanged adds the event that an agent has registered or was removed.
func (s *System) agentChanged(ctx context.Context, what string, a agent.Agent) {
	if _, err := s.Events.Add(ctx, what, "", "", a); err != nil && ctx.Err() == nil {
		s.logger.WarnContext(ctx, "an event of an agent is missing", "event", what, "agent", a.ID, "err", err)
	}
}
