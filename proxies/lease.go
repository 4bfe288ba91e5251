package proxies

import (
	"context"
	"errors"
	"sync"
	"time"
)

// A Lease is the use of a picked proxy for one request. End it once with Report, Pause or Release.
type Lease struct {
	Proxy Proxy

	from  *leases
	site  string // or another scope
	begun time.Time
	trial bool
	done  bool // the lease has ended
	ban   bool // the lease was reported as banned
}

// Outcome is the result of a request.
type Outcome string

// Outcomes of requests.
const (
	Succeeded Outcome = "ok"   // the site responded, whatever the status
	Failed    Outcome = "fail" // the proxy failed
	TimedOut  Outcome = "slow" // it timed out; the proxy may have failed
	Banned    Outcome = "ban"  // the site bans the proxy
	Paused    Outcome = "wait" // the site requests a pause from the proxy

	// bannedLate replaces an earlier reported success.
	bannedLate Outcome = "late"

	// The target is reachable for other proxies, but not for this one. Consecutive misses of one target count as a
	// single failure over all sites, because the target may reject the proxy.
	missed         Outcome = "miss"
	missedTimedOut Outcome = "hang" // by a timeout, which counts half
	// The proxy does not reach the target, for a reason that affects this target only: its rules forbid the target,
	// or it timed out at a target that no proxy reached.
	useless Outcome = "useless"
)

// Release ends the lease without an outcome.
func (l *Lease) Release() { l.from.end(l, nil) }

// Report ends the lease with the outcome of the request and, for a success, the time to the first byte.
func (l *Lease) Report(o Outcome, latency time.Duration) { l.from.end(l, l.report(o, latency, -1)) }

func (l *Lease) report(o Outcome, latency, cooldown time.Duration) *report {
	return &report{l.Proxy.ID, o, l.begun, latency, cooldown}
}

// Pause ends the lease and suspends the proxy at the site for d.
func (l *Lease) Pause(o Outcome, d time.Duration) { l.from.end(l, l.report(o, 0, d)) }

// reportBan reports that the site bans the proxy, even if the lease has ended as a success.
func (l *Lease) reportBan() {
	v := l.from.pool.view
	v.mu.Lock()
	done, known := l.done, l.ban
	l.ban = l.ban || done
	v.mu.Unlock()
	switch {
	case !done:
		l.Report(Banned, 0)
	case !known:
		l.reportLate(bannedLate)
	}
}

// reportLate reports an outcome that became known after the end of the lease.
func (l *Lease) reportLate(o Outcome) { l.from.report(l, l.report(o, 0, -1)) }

// A report is the outcome of one request, to be written to Redis.
type report struct {
	id       string
	outcome  Outcome
	begun    time.Time
	latency  time.Duration
	cooldown time.Duration // negative means the default
}

// leases manages the leases on members of a view and collects the reports. It has the lifetime of the Pool; run
// writes the reports.
type leases struct {
	pool    *Pool
	pending chan struct{} // has a token if there are reports to write
	writing sync.Mutex    // held while reports are written

	mu      sync.Mutex          // guards the fields below
	reports map[string][]report // by scope
	count   int                 // number of reports
}

// run writes each report within FlushEvery until ctx is done, then the remaining ones.
func (ls *leases) run(ctx context.Context) {
	for {
		select {
		case <-ls.pending:
		case <-ctx.Done():
		}
		select {
		case <-time.After(ls.pool.cfg.FlushEvery):
		case <-ctx.Done():
			ls.flushNow()
			return
		}
		ls.flushNow()
	}
}

// acquire creates a lease on a member. The caller holds the view's mu.
func (ls *leases) acquire(m *member, scope string) *Lease {
	m.inFlight++
	there := ls.pool.view.scopeOf(scope).health[m.ID]
	// The start must be later than known failures, even if their times are from another clock or in the same
	// millisecond: report.lua compares these times.
	begun := time.Now()
	for _, failed := range []time.Time{m.all.LastFail, there.LastFail} {
		if begun.UnixMilli() <= failed.UnixMilli() {
			begun = failed.Add(time.Millisecond)
		}
	}
	return &Lease{Proxy: m.Proxy, from: ls, site: scope, begun: begun, trial: m.all.Fails > 0 || there.Fails > 0}
}

// end ends a lease, with a report if r is not nil. Further calls do nothing.
func (ls *leases) end(l *Lease, r *report) {
	v := ls.pool.view
	v.mu.Lock()
	if l.done {
		v.mu.Unlock()
		return
	}
	l.done = true
	l.ban = r != nil && r.outcome == Banned
	if m := v.members[l.Proxy.ID]; m != nil {
		m.inFlight--
	}
	v.mu.Unlock()
	if r != nil {
		ls.report(l, r)
	}
	if l.trial {
		ls.pool.store.endTrial(l.site, l.Proxy.ID)
	}
}

// report queues a report for run. It flushes when many reports are queued.
func (ls *leases) report(l *Lease, r *report) {
	const many, most = 512, 100_000
	v := ls.pool.view
	v.mu.Lock()
	if m := v.members[l.Proxy.ID]; m != nil {
		ls.suspend(m, v.scopeOf(l.site), r)
	}
	v.mu.Unlock()

	ls.mu.Lock()
	if ls.count >= most { // Redis has been down for a long time; drop the reports to limit memory use
		clear(ls.reports)
		ls.count = 0
	}
	ls.reports[l.site] = append(ls.reports[l.site], *r)
	ls.count++
	full := ls.count%many == 0
	ls.mu.Unlock()
	select {
	case ls.pending <- struct{}{}:
	default:
	}
	if full {
		ls.flushNow()
	}
}

// suspend excludes a member until the report is in Redis and the view was read again, so that this process does not
// pick a failed proxy. The caller holds the view's mu.
func (ls *leases) suspend(m *member, s *scope, r *report) {
	miss := r.outcome == missed || r.outcome == missedTimedOut
	if r.outcome == Failed || r.outcome == TimedOut || miss && s.health[m.ID].Fails == 0 {
		m.failed = time.Now()
	}
	switch r.outcome {
	case missed, missedTimedOut, useless, Banned, Paused, bannedLate:
		if s.failed != nil {
			s.failed[m.ID] = time.Now()
		}
	}
}

// flushNow calls flush with a timeout of five seconds and logs a failure. The reports are kept for the next flush.
func (ls *leases) flushNow() {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	if err := ls.flush(ctx); err != nil {
		ls.pool.cfg.Logger.WarnContext(ctx, "failed to write proxy reports", "err", err)
	}
}

// flush writes the queued reports.
func (ls *leases) flush(ctx context.Context) error {
	ls.writing.Lock()
	defer ls.writing.Unlock()
	ls.mu.Lock()
	reports := ls.reports
	ls.reports, ls.count = map[string][]report{}, 0
	ls.mu.Unlock()
	var errs []error
	for scope, list := range reports {
		if err := ls.write(ctx, scope, list); err != nil {
			errs = append(errs, err)
			ls.mu.Lock()
			ls.reports[scope] = append(list, ls.reports[scope]...)
			ls.count += len(list)
			ls.mu.Unlock()
		}
	}
	return errors.Join(errs...)
}

// write writes the reports of a scope. Members removed from the pool by them are removed from the view.
func (ls *leases) write(ctx context.Context, scope string, list []report) error {
	dead, err := ls.pool.store.report(ctx, scope, list)
	if len(dead) > 0 {
		ls.pool.cfg.Logger.InfoContext(ctx, "removed failed proxies from the pool", "count", len(dead))
		ls.pool.view.dropAll(dead)
	}
	return err
}
