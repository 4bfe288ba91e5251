package proxies

import (
	"context"
	"slices"
	"time"

	"muster/proxies/probe"
	"muster/tasks"
)

// Recheck checks the members that are due and the proxies that were removed within the last day, in chunks over the
// fleet. A new proxy is due every minute, one that has never failed every half hour, and a removed one after 5 minutes
// and then at intervals that double. A member that fails rests until its next check, and is removed from the pool after
// PoolConfig.MaxFails failures in a row. Send it every minute or so.
var Recheck = tasks.New[RecheckInput, Report]("proxies.recheck", tasks.Queue("probe"), tasks.Timeout(time.Minute))

// RecheckInput says how much is checked.
type RecheckInput struct {
	Max      int  `json:"max"`                // proxies. Defaults to 1000
	Archived bool `json:"archived,omitempty"` // also those that were removed
}

// settleRecheck ends a recheck as Publish ends a refresh, but without the yields of sources.
var settleRecheck = tasks.New[[]tasks.Outcome[Tally], Report]("proxies.settle_recheck", tasks.Queue("probe"), tasks.Timeout(time.Minute), tasks.MaxRetry(2))

// recheckEvery is how long after its last success a member is due: longer, the more often it has worked.
func recheckEvery(h Health) time.Duration {
	if h.Fails > 0 {
		return time.Minute
	}
	return min(max(time.Duration(float64(h.Requests)*h.OK)*time.Minute, time.Minute), 30*time.Minute)
}

func (s *Service) recheck(ctx context.Context, in RecheckInput) (tasks.Signature[Report], error) {
	if in.Max <= 0 {
		in.Max = 1000
	}
	due, err := s.due(ctx, in, time.Now())
	if err != nil {
		return tasks.Signature[Report]{}, err
	}
	chunks := slices.Collect(slices.Chunk(due, ChunkSize))
	return tasks.Chord(tasks.Settle(tasks.Each(chunks, Check)), settleRecheck), nil
}

// due returns the candidates of a recheck at a time, the most overdue first.
func (s *Service) due(ctx context.Context, in RecheckInput, now time.Time) ([]Candidate, error) {
	members, err := s.cfg.Pool.List(ctx, Filter{Anonymity: probe.Transparent})
	if err != nil {
		return nil, err
	}
	overdue := func(m Member) time.Duration {
		last := m.CheckedAt
		if m.Health.LastOK.After(last) {
			last = m.Health.LastOK
		}
		return now.Sub(last) - recheckEvery(m.Health)
	}
	members = slices.DeleteFunc(members, func(m Member) bool { return overdue(m) < 0 })
	slices.SortStableFunc(members, func(a, b Member) int { return int(overdue(b) - overdue(a)) })
	var due []Candidate
	for _, m := range members {
		c := m.Candidate()
		c.Known, c.Unlisted = true, true
		due = append(due, c)
	}
	due = due[:min(len(due), in.Max)]
	if in.Archived && len(due) < in.Max {
		archived, err := s.cfg.Pool.store.archivedDue(ctx, now, in.Max-len(due))
		if err != nil {
			return nil, err
		}
		for _, p := range archived {
			c := p.Candidate()
			c.Unlisted = true
			due = append(due, c)
		}
	}
	return due, nil
}

// untilNextCheck is how long a member that failed a check is not lent: the next check ends it.
const untilNextCheck = 3 * time.Minute

// failChecks counts a failed check against members.
func (ls *leases) failChecks(ctx context.Context, ids []string) error {
	reports := make([]report, len(ids))
	for i, id := range ids {
		reports[i] = report{id: id, outcome: Failed, begun: time.Now().Add(time.Millisecond), cooldown: untilNextCheck}
	}
	defer ls.view.expire()
	return ls.write(ctx, "", reports)
}

// settle counts what failed against it and exports the rest.
func (s *Service) settle(ctx context.Context, outcomes []tasks.Outcome[Tally]) (Report, error) {
	var report Report
	for _, o := range outcomes {
		if o.Err != nil {
			report.Errors++
			continue
		}
		report.Merge(o.Value)
	}
	report.Candidates = report.Checked
	pool := s.cfg.Pool
	live, err := pool.Count(ctx)
	if err != nil {
		return report, err
	}
	if report.Accepted > 0 || 2*len(report.Gone) < live { // else it is more likely our network than half of the pool
		if err := pool.leases.failChecks(ctx, report.Gone); err != nil {
			return report, err
		}
		if live, err = pool.Count(ctx); err != nil {
			return report, err
		}
	}
	report.Gone, report.Sources, report.Live = nil, nil, live
	if s.cfg.ExportDir != "" && report.Checked > 0 {
		if _, err := pool.Export(ctx, s.cfg.ExportDir); err != nil {
			return report, err
		}
	}
	return report, nil
}
