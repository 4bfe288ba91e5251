package proxies

import (
	"context"
	"slices"
	"time"

	"muster/proxies/probe"
	"muster/tasks"
)

// Recheck checks the members that are due, in chunks distributed over the workers. A new proxy is due every minute, one
// without failures every half hour. A member that fails a check is suspended until its next check and removed after
// three consecutive failures. Send it about once a minute.
var Recheck = tasks.New[struct{}, Report]("proxies.recheck", tasks.Queue("probe"), tasks.Timeout(time.Minute))

// maxRecheck is the maximum number of proxies of a recheck.
const maxRecheck = 1000

// recheckCandidate returns the candidate for a recheck, which does not count for its sources.
func (m Member) recheckCandidate() Candidate {
	c := m.Candidate
	c.Known, c.Unlisted = true, true
	return c
}

// settleRecheck finishes a recheck like Publish finishes a refresh, but does not record yields of sources.
var settleRecheck = tasks.New[[]tasks.Outcome[Tally], Report]("proxies.settle_recheck", tasks.Queue("probe"), tasks.Timeout(time.Minute), tasks.MaxRetry(2))

// recheckEvery returns the interval between the last success and the next check. It grows with the number of
// successes.
func recheckEvery(h Health) time.Duration {
	if h.Fails > 0 {
		return time.Minute
	}
	return min(max(time.Duration(float64(h.Requests)*h.OK)*time.Minute, time.Minute), 30*time.Minute)
}

func (s *Service) recheck(ctx context.Context, _ struct{}) (tasks.Signature[Report], error) {
	due, err := s.dueCandidates(ctx, time.Now())
	if err != nil {
		return tasks.Signature[Report]{}, err
	}
	chunks := slices.Collect(slices.Chunk(due, ChunkSize))
	return tasks.Chord(tasks.Settle(tasks.Each(chunks, Check)), settleRecheck), nil
}

// dueCandidates returns the candidates that are due for a recheck, the most overdue first.
func (s *Service) dueCandidates(ctx context.Context, now time.Time) ([]Candidate, error) {
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
		due = append(due, m.recheckCandidate())
	}
	return due[:min(len(due), maxRecheck)], nil
}

// untilNextCheck is the suspension after a failed check. The next check ends it earlier.
const untilNextCheck = 3 * time.Minute

// failChecks records a failed check for members.
func (ls *leases) failChecks(ctx context.Context, ids []string) error {
	reports := make([]report, len(ids))
	for i, id := range ids {
		reports[i] = report{id: id, outcome: Failed, begun: time.Now().Add(time.Millisecond), cooldown: untilNextCheck}
	}
	defer ls.pool.view.expire()
	return ls.write(ctx, "", reports)
}

// settle records the failures of a recheck and exports the pool.
func (s *Service) settle(ctx context.Context, outcomes []tasks.Outcome[Tally]) (Report, error) {
	report, _ := sumUp(outcomes)
	pool := s.cfg.Pool
	live, err := pool.Count(ctx)
	if err != nil {
		return report, err
	}
	if report.Accepted > 0 || 2*len(report.Gone) < live { // otherwise a failure of our network is more likely than a failure of half the pool
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
