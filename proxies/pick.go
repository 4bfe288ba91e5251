package proxies

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"
)

// Strategy is how a proxy is chosen among those that will do.
type Strategy string

// The strategies.
const (
	Weighted   Strategy = "weighted"    // the better of two at random, one in twenty quite at random: the default
	RoundRobin Strategy = "round_robin" // one after another
	Random     Strategy = "random"      //
	LeastUsed  Strategy = "least_used"  // the least used of sixteen at random
	Fastest    Strategy = "fastest"     // the fastest that is free
)

// PickOptions say which proxy is wanted.
type PickOptions struct {
	// Site is whose health counts. Defaults to none.
	Site string
	// Strategy defaults to Weighted.
	Strategy Strategy
	Filter   Filter
	// Sticky gives every pick with the same key the same proxy, for StickyFor and StickyUses, as long as it works.
	// Defaults to none.
	Sticky string
	// StickyFor defaults to 10 minutes.
	StickyFor time.Duration
	// StickyUses defaults to no limit.
	StickyUses int
	// Wait is how long to wait for a proxy to become free or return from its cooldown. Defaults to 0: ErrNoProxy at once.
	Wait time.Duration
	// Except are ids not to pick.
	Except []string

	only    string // the id of the one proxy to pick
	apart   bool   // best a proxy that no session keeps to
	tunnel  string // the target of a tunnel: what becomes of it counts there, and not at the site
	without string // a protocol that cannot carry the request
}

// scope is where what becomes of a request counts, beside all sites together.
func (o *PickOptions) scope() string {
	if o.tunnel != "" {
		return tunnelScope(o.tunnel)
	}
	return o.Site
}

// Lease is a proxy that was picked. Give it back with Report or Release, once.
type Lease struct {
	Proxy Proxy

	pool  *Pool
	site  string // or another scope
	begun time.Time
	trial bool
	done  bool // given back
	ban   bool // reported as banned
}

type sticky struct {
	id    string
	until time.Time
	left  int
}

// Pick lends a proxy. It returns an error with ErrNoProxy in it when there is none, after PickOptions.Wait. When some
// would do but rest or are busy, the error has a method Resting, which says for how long.
func (p *Pool) Pick(ctx context.Context, o PickOptions) (*Lease, error) {
	deadline := time.Now().Add(o.Wait)
	p.mu.Lock()
	p.picking = true
	p.mu.Unlock()
	var last *tally // what the last look has found; nil before the first
	for {
		if err := p.sync(ctx, []string{o.Site, o.scope()}, false); err != nil {
			p.mu.Lock()
			known := len(p.order) > 0
			p.mu.Unlock()
			if ctx.Err() != nil && last != nil { // the wait is over, and not the pool out of reach
				return nil, errors.Join(last.err(), ctx.Err())
			}
			if !known || ctx.Err() != nil {
				return nil, err
			}
			p.cfg.Logger.Warn("the pool cannot be read; going on with what is known", "err", err)
		}
		lease, why := p.pick(o)
		if lease != nil && lease.trial && !p.mayTry(ctx, lease) {
			lease.trial = false // it is another's
			lease.Release()
			o.Except = append(slices.Clip(o.Except), lease.Proxy.ID)
			continue
		}
		if lease != nil {
			return lease, nil
		}
		if o.only != "" && why.busy == 0 {
			return nil, &sessionOver{why: why}
		}
		if !time.Now().Before(deadline) {
			return nil, why.err()
		}
		last = &why
		select {
		case <-time.After(min(250*time.Millisecond, max(time.Until(deadline), time.Millisecond))):
		case <-ctx.Done():
			return nil, errors.Join(why.err(), ctx.Err())
		}
		o.Except = nil // what failed a moment ago is better than nothing
	}
}

// mayTry lets one of all processes use a proxy that comes back from its cooldown, until it has reported.
func (p *Pool) mayTry(ctx context.Context, l *Lease) bool {
	ok, err := p.rdb.SetNX(ctx, trialKey(p.cfg.Name, l.site, l.Proxy.ID), "1", 30*time.Second).Result()
	return ok || err != nil
}

// tally says why proxies were not taken.
type tally struct {
	total, unfit, cooling, busy, excluded, banned int
	back                                          time.Time // when the first of those that cool down may be taken
}

// rests notes a proxy that may be taken again later.
func (t *tally) rests(until time.Time) {
	t.cooling++
	if t.back.IsZero() || until.Before(t.back) {
		t.back = until
	}
}

// busyFor is how long a busy proxy is taken to be so.
const busyFor = 500 * time.Millisecond

// err is ErrNoProxy and why.
func (t *tally) err() error {
	err := fmt.Errorf("%w (%s)", ErrNoProxy, t)
	switch {
	case t.busy > 0:
		return &restError{err, busyFor}
	case t.cooling > 0:
		return &restError{err, max(time.Until(t.back), time.Millisecond)}
	}
	return err
}

// restError is an ErrNoProxy that ends by itself: there are proxies that would do, but not now.
type restError struct {
	error
	after time.Duration
}

// Unwrap returns the cause.
func (e *restError) Unwrap() error { return e.error }

// Resting is how long it is until one of the proxies may be taken.
func (e *restError) Resting() time.Duration { return e.after }

func (t *tally) String() string {
	if t.total == 0 {
		return "the pool is empty"
	}
	return fmt.Sprintf("of %d in the pool %d do not fit, %d cool down, %d are busy, %d were tried, %d are banned", t.total, t.unfit, t.cooling, t.busy, t.excluded, t.banned)
}

func (p *Pool) pick(o PickOptions) (*Lease, tally) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	name := o.scope()
	site, own := p.scopeOf(o.Site), p.scopeOf(name)
	list := p.shortlist(&o.Filter)
	unfit := len(p.order) - len(list.members)
	t := tally{total: len(p.order), unfit: unfit}
	fits := func(m *member) bool {
		all, there, past := &m.all, site.health[m.ID].Until, own.health[m.ID]
		if past.Until.After(there) {
			there = past.Until
		}
		switch {
		case slices.Contains(o.Except, m.ID), o.without != "" && m.Protocol == o.without:
			t.excluded++
		case p.bannedNow(m.ID, o.Site, now):
			t.banned++
		case now.Before(there) && all.Until.Before(there):
			t.rests(there)
		case now.Before(all.Until):
			t.rests(all.Until)
		case m.inFlight >= p.share, m.inFlight > 0 && (all.Fails > 0 || past.Fails > 0): // one trial at a time
			t.busy++
		default:
			return true
		}
		return false
	}

	if o.only != "" {
		if m := p.members[o.only]; m != nil && o.Filter.takes(&m.Proxy) && fits(m) {
			return p.lend(m, own, name, now), t
		}
		return nil, t
	}
	if o.Sticky != "" {
		if s := p.stickies[o.Sticky]; s != nil && now.Before(s.until) && s.left != 0 {
			if m := p.members[s.id]; m != nil && o.Filter.takes(&m.Proxy) && fits(m) {
				s.left--
				return p.lend(m, own, name, now), t
			}
		}
	}
	var m *member
	if o.apart && len(p.kept) > 0 {
		alone := func(m *member) bool { return p.kept[m.ID] == 0 && fits(m) }
		if m = list.choose(o.Strategy, site, alone, now); m == nil {
			m = list.scan(alone)
		}
		t = tally{total: len(p.order), unfit: unfit}
	}
	if m == nil {
		m = list.choose(o.Strategy, site, fits, now)
	}
	if m == nil {
		t = tally{total: len(p.order), unfit: unfit}
		m = list.scan(fits) // every one of them, for a sample may miss the few that will do
	}
	if m == nil {
		return nil, t
	}
	if o.Sticky != "" {
		p.forgetStickies(now)
		p.stickies[o.Sticky] = &sticky{id: m.ID, until: now.Add(cmp.Or(o.StickyFor, 10*time.Minute)), left: cmp.Or(o.StickyUses, -1) - 1}
	}
	return p.lend(m, own, name, now), t
}

// scopeOf returns a scope of the view, an empty one for "". The caller holds mu.
func (p *Pool) scopeOf(name string) *scope {
	if s := p.scopes[name]; s != nil && name != "" {
		return s
	}
	return &scope{}
}

// forgetStickies keeps their number bounded.
func (p *Pool) forgetStickies(now time.Time) {
	if len(p.stickies) < 10_000 {
		return
	}
	for key, s := range p.stickies {
		if !now.Before(s.until) {
			delete(p.stickies, key)
		}
	}
	if len(p.stickies) >= 10_000 {
		clear(p.stickies)
	}
}

func (p *Pool) lend(m *member, site *scope, name string, now time.Time) *Lease {
	m.inFlight++
	m.uses++
	there := site.health[m.ID]
	// It begins after the failures that it knows of, whatever the clocks of those who saw them say, and within their
	// millisecond too: a report tells by that time which failures its request has outlived.
	begun := now
	for _, failed := range []time.Time{m.all.LastFail, there.LastFail} {
		if begun.UnixMilli() <= failed.UnixMilli() {
			begun = failed.Add(time.Millisecond)
		}
	}
	return &Lease{Proxy: m.Proxy, pool: p, site: name, begun: begun, trial: m.all.Fails > 0 || there.Fails > 0}
}

// Outcome is what became of a request.
type Outcome string

// The outcomes.
const (
	Succeeded Outcome = "ok"   // the site answered, whatever it said
	Failed    Outcome = "fail" // it was the proxy's fault
	TimedOut  Outcome = "slow" // it timed out, which may be the proxy's fault
	Banned    Outcome = "ban"  // the site does not want this proxy
	Paused    Outcome = "wait" // the site wants a pause from this proxy

	// bannedAfterAll takes back what a success has said of the site.
	bannedAfterAll Outcome = "late"

	// A target that others reach, and this proxy does not. It counts over all sites only the first time in a row: it may
	// be the target that turns the proxy away.
	missed Outcome = "miss"
	hung   Outcome = "hang" // by a timeout, which is half of a failure
	// A target that the proxy does not reach either, for a reason that counts there alone: its own rules forbid it, or
	// it took too long over what nobody has reached.
	useless Outcome = "useless"
)

// report is an outcome on its way to Redis.
type report struct {
	id       string
	outcome  Outcome
	begun    time.Time
	latency  time.Duration
	cooldown time.Duration // negative is the usual one
}

// Release gives the proxy back with nothing learned.
func (l *Lease) Release() { l.give(nil) }

// Report gives the proxy back with what became of the request, and the time to its first byte when it succeeded.
func (l *Lease) Report(o Outcome, latency time.Duration) {
	l.give(&report{id: l.Proxy.ID, outcome: o, begun: l.begun, latency: latency, cooldown: -1})
}

// Pause gives the proxy back; the site wants no more from it for d.
func (l *Lease) Pause(o Outcome, d time.Duration) {
	l.give(&report{id: l.Proxy.ID, outcome: o, begun: l.begun, cooldown: d})
}

func (l *Lease) give(r *report) {
	p := l.pool
	p.mu.Lock()
	if l.done {
		p.mu.Unlock()
		return
	}
	l.done = true
	l.ban = r != nil && r.outcome == Banned
	if m := p.members[l.Proxy.ID]; m != nil {
		m.inFlight--
		if r != nil {
			p.foresee(m, l.site, r)
		}
	}
	full := r != nil && p.note(l.site, *r)
	p.mu.Unlock()
	defer p.flushIf(full)
	if l.trial {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = p.rdb.Del(ctx, trialKey(p.cfg.Name, l.site, l.Proxy.ID)).Err() // or it expires
	}
}

// banned reports that the site does not want the proxy, also when the lease was given back as a success before.
func (l *Lease) banned() {
	p := l.pool
	p.mu.Lock()
	done, known := l.done, l.ban
	l.ban = l.ban || done
	p.mu.Unlock()
	switch {
	case !done:
		l.Report(Banned, 0)
	case !known:
		l.reportLate(bannedAfterAll)
	}
}

// reportLate says what became of a request whose lease was given back before that was known.
func (l *Lease) reportLate(o Outcome) {
	p := l.pool
	r := report{id: l.Proxy.ID, outcome: o, begun: l.begun, cooldown: -1}
	p.mu.Lock()
	if m := p.members[l.Proxy.ID]; m != nil {
		p.foresee(m, l.site, &r)
	}
	full := p.note(l.site, r)
	p.mu.Unlock()
	p.flushIf(full)
}

// flushIf writes the reports when there are enough for it.
func (p *Pool) flushIf(full bool) {
	if !full {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	if err := p.Flush(ctx); err != nil && !errors.Is(err, context.Canceled) {
		p.cfg.Logger.Warn("reports on proxies could not be written", "err", err)
	}
}

// foresee changes the view as the report will change Redis, so that this process does not pick a failed proxy again
// before it has heard back. The caller holds mu.
func (p *Pool) foresee(m *member, site string, r *report) {
	now := time.Now()
	s := p.scopeOf(site)
	there := s.health[m.ID]
	miss := r.outcome == missed || r.outcome == hung
	if r.outcome == Failed || r.outcome == TimedOut || miss && there.Fails == 0 {
		m.all.Fails++
		m.all.LastFail = now
		m.all.Until = now.Add(p.cfg.FlushEvery + p.cfg.SyncEvery)
	}
	if miss {
		there.Fails++
	}
	switch r.outcome {
	case missed, hung, useless, Banned, Paused, bannedAfterAll:
		if s.health != nil {
			there.Until = now.Add(max(r.cooldown, p.cfg.FlushEvery+p.cfg.SyncEvery))
			s.health[m.ID] = there
		}
	}
}

// note keeps a report for the next flush; true when there are enough for one now. The caller holds mu.
func (p *Pool) note(site string, r report) bool {
	const enough, most = 512, 100_000
	if p.reported >= most { // Redis has been away for long: what is newest is worth most, but memory is not endless
		clear(p.reports)
		p.reported = 0
	}
	p.reports[site] = append(p.reports[site], r)
	p.reported++
	if p.flushTimer == nil && !p.closed {
		p.flushing.Add(1)
		p.flushTimer = time.AfterFunc(p.cfg.FlushEvery, func() {
			defer p.flushing.Done()
			p.mu.Lock()
			p.flushTimer = nil
			p.mu.Unlock()
			ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
			defer cancel()
			if err := p.Flush(ctx); err != nil {
				p.cfg.Logger.Warn("reports on proxies could not be written", "err", err)
			}
		})
	}
	return p.reported%enough == 0
}

// Flush writes the reports gathered so far.
func (p *Pool) Flush(ctx context.Context) error {
	p.mu.Lock()
	reports := p.reports
	p.reports, p.reported = map[string][]report{}, 0
	p.mu.Unlock()
	var failure error
	for site, list := range reports {
		if err := p.write(ctx, site, list); err != nil {
			failure = err
			p.mu.Lock()
			p.reports[site] = append(list, p.reports[site]...)
			p.reported += len(list)
			p.mu.Unlock()
		}
	}
	return failure
}

func (p *Pool) write(ctx context.Context, site string, list []report) error {
	keys := append(p.poolKeys(), healthKey(p.cfg.Name, site), changesKey(p.cfg.Name, site))
	if site == "" { // requests of no site in particular have a scope of their own
		keys[7], keys[8] = healthKey(p.cfg.Name, "*none*"), changesKey(p.cfg.Name, "*none*")
	}
	for chunk := range slices.Chunk(list, 150) {
		args := []any{time.Now().UnixMilli(), p.cfg.MaxFails, changesKept}
		for _, r := range chunk {
			cooldown := int64(-1)
			if r.cooldown >= 0 {
				cooldown = r.cooldown.Milliseconds()
			}
			args = append(args, r.id, string(r.outcome), r.begun.UnixMilli(), float64(r.latency.Microseconds())/1000, cooldown, rand.Float64())
		}
		dead, err := reportCmd.Run(ctx, p.rdb, keys, args...).StringSlice()
		if err != nil {
			return fmt.Errorf("report on proxies: %w", err)
		}
		if len(dead) > 0 {
			p.cfg.Logger.Info("proxies failed for good and left the pool", "count", len(dead))
			p.mu.Lock()
			for _, id := range dead {
				p.drop(id)
			}
			p.mu.Unlock()
		}
	}
	return nil
}
