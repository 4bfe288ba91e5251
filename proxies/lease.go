package proxies

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"
)

// Lease is a proxy that was picked. End it with Report, Pause or Release, once.
type Lease struct {
	Proxy Proxy

	from  *leases
	site  string // or another scope
	begun time.Time
	trial bool
	done  bool // has ended
	ban   bool // reported as banned
}

// Outcome is the outcome of a request.
type Outcome string

// The outcomes.
const (
	Succeeded Outcome = "ok"   // the site answered, whatever it said
	Failed    Outcome = "fail" // it was the proxy's fault
	TimedOut  Outcome = "slow" // it timed out, which may be the proxy's fault
	Banned    Outcome = "ban"  // the site does not want this proxy
	Paused    Outcome = "wait" // the site wants a pause from this proxy

	// bannedLate replaces a success that was reported before.
	bannedLate Outcome = "late"

	// A target that others reach, and this proxy does not. It counts over all sites only the first time in a row: it may
	// be the target that turns the proxy away.
	missed         Outcome = "miss"
	missedTimedOut Outcome = "hang" // by a timeout, which is half of a failure
	// A target that the proxy does not reach either, for a reason that counts there alone: its own rules forbid it, or
	// it took too long over what no proxy has reached.
	useless Outcome = "useless"
)

// Release ends the lease without an outcome.
func (l *Lease) Release() { l.from.give(l, nil) }

// Report ends the lease with the outcome of the request, and the time to its first byte when it succeeded.
func (l *Lease) Report(o Outcome, latency time.Duration) {
	l.from.give(l, &report{id: l.Proxy.ID, outcome: o, begun: l.begun, latency: latency, cooldown: -1})
}

// Pause ends the lease; the proxy is not used for the site for d.
func (l *Lease) Pause(o Outcome, d time.Duration) {
	l.from.give(l, &report{id: l.Proxy.ID, outcome: o, begun: l.begun, cooldown: d})
}

// reportBan reports that the site does not want the proxy, also when the lease has ended as a success.
func (l *Lease) reportBan() {
	v := l.from.view
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

// reportLate reports an outcome that became known after the lease had ended.
func (l *Lease) reportLate(o Outcome) {
	l.from.report(l, &report{id: l.Proxy.ID, outcome: o, begun: l.begun, cooldown: -1})
}

// report is the outcome of one request, to be written to Redis.
type report struct {
	id       string
	outcome  Outcome
	begun    time.Time
	latency  time.Duration
	cooldown time.Duration // negative is the usual one
}

// leases lends members of a view and collects the reports on them. It lives as long as the Pool; run writes the reports.
type leases struct {
	view     *view
	store    *store
	logger   *slog.Logger
	maxFails float64
	every    time.Duration // PoolConfig.FlushEvery
	maxAge   time.Duration // PoolConfig.SyncEvery
	pending  chan struct{} // has a token when there are reports for run to write
	writing  sync.Mutex    // held while reports are written

	mu      sync.Mutex          // guards the fields below
	reports map[string][]report // by scope
	count   int                 // of reports
}

func newLeases(v *view, s *store, cfg PoolConfig) *leases {
	return &leases{
		view: v, store: s, logger: cfg.Logger, maxFails: cfg.MaxFails, every: cfg.FlushEvery, maxAge: cfg.SyncEvery,
		pending: make(chan struct{}, 1), reports: map[string][]report{},
	}
}

// run writes reports, each at most FlushEvery after it was made, until ctx is done; then it writes the last ones.
func (ls *leases) run(ctx context.Context) {
	for {
		select {
		case <-ls.pending:
		case <-ctx.Done():
		}
		select {
		case <-time.After(ls.every):
		case <-ctx.Done():
			ls.flushNow()
			return
		}
		ls.flushNow()
	}
}

// lend takes a member for a request. The caller holds the view's mu.
func (ls *leases) lend(m *member, scope string) *Lease {
	m.inFlight++
	there := ls.view.scopeOf(scope).health[m.ID]
	// It begins after the known failures, also when their times are from the clock of another machine, or in the same
	// millisecond: report.lua compares these times.
	begun := time.Now()
	for _, failed := range []time.Time{m.all.LastFail, there.LastFail} {
		if begun.UnixMilli() <= failed.UnixMilli() {
			begun = failed.Add(time.Millisecond)
		}
	}
	return &Lease{Proxy: m.Proxy, from: ls, site: scope, begun: begun, trial: m.all.Fails > 0 || there.Fails > 0}
}

// give ends a lease, with a report if r is not nil. A second call does nothing.
func (ls *leases) give(l *Lease, r *report) {
	v := ls.view
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
		ls.store.endTrial(l.site, l.Proxy.ID)
	}
}

// report keeps a report for run, and writes all of them when there are many.
func (ls *leases) report(l *Lease, r *report) {
	const many, most = 512, 100_000
	v := ls.view
	v.mu.Lock()
	if m := v.members[l.Proxy.ID]; m != nil {
		ls.foresee(m, v.scopeOf(l.site), r)
	}
	v.mu.Unlock()

	ls.mu.Lock()
	if ls.count >= most { // Redis has been down for long: the oldest reports are dropped to bound memory
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

// foresee holds back a member until the report is in Redis and the view has been read, so that this process does not pick
// a failed proxy again. The caller holds the view's mu.
func (ls *leases) foresee(m *member, s *scope, r *report) {
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

// flushNow is flush within five seconds; a failure is logged, and the reports are kept for the next time.
func (ls *leases) flushNow() {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	if err := ls.flush(ctx); err != nil {
		ls.logger.WarnContext(ctx, "reports on proxies could not be written", "err", err)
	}
}

// flush writes the reports collected so far.
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

// write writes reports on requests in a scope. Members that these remove from the pool are removed from the view.
func (ls *leases) write(ctx context.Context, scope string, list []report) error {
	dead, err := ls.store.report(ctx, scope, ls.maxFails, list)
	if len(dead) > 0 {
		ls.logger.InfoContext(ctx, "proxies failed too often and were removed from the pool", "count", len(dead))
		ls.view.dropAll(dead)
	}
	return err
}
