package proxies

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"time"
)

// PickOptions select a proxy.
type PickOptions struct {
	// Site is the site whose health is used. Defaults to none.
	Site   string
	Filter Filter
	// Sticky assigns the same proxy to all picks with the same key, for StickyFor, while it works. Defaults to none.
	Sticky string
	// StickyFor is the lifetime of a sticky assignment. Defaults to 10 minutes.
	StickyFor time.Duration
	// Wait is the maximum time to wait for a free proxy or the end of a cooldown. Defaults to 0: ErrNoProxy
	// immediately.
	Wait time.Duration
	// Except lists IDs that must not be picked.
	Except []string

	requiredID  string // the ID of the only acceptable proxy
	tunnel      string // the target of a tunnel: the outcome is recorded for it instead of the site
	unsupported string // a protocol that does not support the request
}

// scope returns the scope in which the outcome of a request is recorded, in addition to all sites.
func (o *PickOptions) scope() string {
	if o.tunnel != "" {
		return tunnelScope(o.tunnel)
	}
	return o.Site
}

// waitStep is the polling interval of Pick while it waits.
const waitStep = 250 * time.Millisecond

// Pick returns a lease on a proxy: the better one of two random proxies, by success rate and latency, or, in one of
// twenty picks, a random one. If no proxy is available, Pick waits for PickOptions.Wait and then returns an error
// that wraps ErrNoProxy. If matching proxies are cooling down or busy, the error has a method Resting that returns
// the expected time until one is available.
func (p *Pool) Pick(ctx context.Context, o PickOptions) (*Lease, error) {
	deadline := time.Now().Add(o.Wait)
	var last *shortage // of the last attempt; nil before the first
	for {
		if err := p.refreshForPick(ctx, &o); err != nil {
			if last != nil && ctx.Err() != nil { // the timeout has expired; Redis is not the cause
				err = errors.Join(last.err(), ctx.Err())
			}
			return nil, err
		}
		lease, why := p.pick(&o)
		switch {
		case lease != nil && lease.trial && !p.store.startTrial(ctx, lease.site, lease.Proxy.ID):
			lease.trial = false // another process runs the trial
			lease.Release()
			o.Except = append(slices.Clip(o.Except), lease.Proxy.ID)
			continue
		case lease != nil:
			return lease, nil
		case o.requiredID != "" && why.busy == 0:
			return nil, &sessionError{why}
		case !time.Now().Before(deadline):
			return nil, why.err()
		}
		last = why
		select {
		case <-time.After(min(waitStep, max(time.Until(deadline), time.Millisecond))):
		case <-ctx.Done():
			return nil, errors.Join(why.err(), ctx.Err())
		}
		o.Except = nil // a proxy that has just failed is better than none
	}
}

// refreshForPick updates the view. While Redis is down, the existing members of the view are used.
func (p *Pool) refreshForPick(ctx context.Context, o *PickOptions) error {
	err := p.view.refresh(ctx, []string{o.Site, o.scope()}, false)
	if err != nil && ctx.Err() == nil && !p.view.empty() {
		p.cfg.Logger.WarnContext(ctx, "cannot read the proxy pool; using the local copy", "err", err)
		return nil
	}
	return err
}

// A shortage explains why no proxy was picked: the number of members by reason.
type shortage struct {
	total, unfit, cooling, busy, tried, banned int
	back                                       time.Time // earliest time at which a cooling proxy is available
}

// addCooling counts a proxy that is available again at until.
func (s *shortage) addCooling(until time.Time) {
	s.cooling++
	if s.back.IsZero() || until.Before(s.back) {
		s.back = until
	}
}

// busyFor is the estimated time until a busy proxy is available.
const busyFor = 500 * time.Millisecond

// err returns an error that wraps ErrNoProxy, with the reasons.
func (s *shortage) err() error {
	err := fmt.Errorf("%w (%s)", ErrNoProxy, s)
	switch {
	case s.busy > 0:
		return &restError{err, busyFor}
	case s.cooling > 0:
		return &restError{err, max(time.Until(s.back), time.Millisecond)}
	}
	return err
}

func (s *shortage) String() string {
	if s.total == 0 {
		return "the pool is empty"
	}
	return fmt.Sprintf("of %d in the pool: %d do not match, %d are cooling down, %d are busy, %d were tried, %d are banned", s.total, s.unfit, s.cooling, s.busy, s.tried, s.banned)
}

// restError is an ErrNoProxy for a temporary shortage: matching proxies exist, but are unavailable now.
type restError struct {
	error
	after time.Duration
}

// Unwrap returns the cause.
func (e *restError) Unwrap() error { return e.error }

// Resting returns the time until one of the proxies is expected to be available.
func (e *restError) Resting() time.Duration { return e.after }

// sticky is the proxy assigned to a sticky key.
type sticky struct {
	id    string
	until time.Time
}

// A search selects a proxy for one pick.
type search struct {
	*Pool
	options   *PickOptions
	site, own *scope // the site, and the scope of the outcome
	now       time.Time
	why       shortage
}

// pick returns a lease on an available member that matches o, or nil and the reason.
func (p *Pool) pick(o *PickOptions) (*Lease, *shortage) {
	p.view.mu.Lock()
	defer p.view.mu.Unlock()
	s := &search{Pool: p, options: o, site: p.view.scopeOf(o.Site), own: p.view.scopeOf(o.scope()), now: time.Now()}
	s.why.total = len(p.view.order)
	m := s.choose()
	if m == nil {
		return nil, &s.why
	}
	return p.leases.acquire(m, o.scope()), nil
}

// choose returns the selected member, or nil.
func (s *search) choose() *member {
	if s.options.requiredID != "" {
		return s.member(s.options.requiredID)
	}
	if m := s.stickyMember(); m != nil {
		return m
	}
	m := s.best()
	if m != nil && s.options.Sticky != "" {
		s.setSticky(m)
	}
	return m
}

// best returns the better one of two matching members, or sometimes a random one, because a proxy that failed at
// first would never be picked again. It examines a random sample first, then all members.
func (s *search) best() *member {
	const samples = 24
	order, want := s.view.order, 2
	if rand.IntN(20) == 0 {
		want = 1
	}
	weight := func(m *member) float64 {
		return score(m.all, s.site.health[m.ID], m.LatencyMS, s.now) / float64(1+m.inFlight)
	}
	var best *member
	for i, start := 0, rand.IntN(max(len(order), 1)); want > 0 && i < samples+len(order) && len(order) > 0; i++ {
		if i == samples {
			s.why = shortage{total: len(order)} // restart, so that each member is counted once
		}
		m := order[(start+i)%len(order)]
		if i < samples {
			m = order[rand.IntN(len(order))]
		}
		if m == best || !s.fits(m) {
			continue
		}
		want--
		if best == nil || weight(m) > weight(best) {
			best = m
		}
	}
	return best
}

// member returns the member with an ID if it is available.
func (s *search) member(id string) *member {
	if m := s.view.members[id]; m != nil && s.fits(m) {
		return m
	}
	return nil
}

// fits reports whether a member is available for the pick. Otherwise it counts the reason.
func (s *search) fits(m *member) bool {
	past := s.own.health[m.ID]
	failed := slices.MaxFunc([]time.Time{m.failed, s.own.failed[m.ID], s.site.failed[m.ID]}, time.Time.Compare)
	until := slices.MaxFunc([]time.Time{m.all.Until, past.Until, s.site.health[m.ID].Until, failed.Add(s.cfg.FlushEvery + s.cfg.SyncEvery)}, time.Time.Compare)
	_, banned := s.view.bannedUntil(m.ID, s.options.Site, s.now)
	switch {
	case !s.options.Filter.matches(&m.Proxy):
		s.why.unfit++
	case slices.Contains(s.options.Except, m.ID), s.options.unsupported != "" && m.Protocol == s.options.unsupported:
		s.why.tried++
	case banned:
		s.why.banned++
	case s.now.Before(until):
		s.why.addCooling(until)
	case m.inFlight >= s.cfg.MaxInFlight, m.inFlight > 0 && (m.all.Fails > 0 || past.Fails > 0): // one trial at a time
		s.why.busy++
	default:
		return true
	}
	return false
}

// stickyMember returns the member assigned to the sticky key if it is available.
func (s *search) stickyMember() *member {
	last := s.stickies[s.options.Sticky]
	if s.options.Sticky == "" || last == nil || !s.now.Before(last.until) {
		return nil
	}
	return s.member(last.id)
}

// setSticky assigns a member to the sticky key. The number of keys is limited.
func (s *search) setSticky(m *member) {
	const most = 10_000
	if len(s.stickies) >= most {
		maps.DeleteFunc(s.stickies, func(_ string, last *sticky) bool { return !s.now.Before(last.until) })
		if len(s.stickies) >= most {
			clear(s.stickies)
		}
	}
	o := s.options
	s.stickies[o.Sticky] = &sticky{id: m.ID, until: s.now.Add(cmp.Or(o.StickyFor, 10*time.Minute))}
}
