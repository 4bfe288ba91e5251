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

// PickOptions say which proxy is wanted.
type PickOptions struct {
	// Site is the site whose health counts. Defaults to none.
	Site   string
	Filter Filter
	// Sticky gives every pick with the same key the same proxy, for StickyFor, as long as it works.
	// Defaults to none.
	Sticky string
	// StickyFor defaults to 10 minutes.
	StickyFor time.Duration
	// Wait is how long to wait for a proxy to become free or return from its cooldown. Defaults to 0: ErrNoProxy at once.
	Wait time.Duration
	// Except are ids not to pick.
	Except []string

	only    string // the id of the one proxy to pick
	apart   bool   // preferably a proxy that no session uses
	tunnel  string // the target of a tunnel: its outcome counts there, and not at the site
	without string // a protocol that cannot carry the request
}

// scope is where the outcome of a request counts, beside all sites together.
func (o *PickOptions) scope() string {
	if o.tunnel != "" {
		return tunnelScope(o.tunnel)
	}
	return o.Site
}

// waitStep is how often Pick looks for a proxy while it waits for one.
const waitStep = 250 * time.Millisecond

// Pick lends a proxy: the better of two at random, by success and latency; one pick in twenty is random. When none fits, it waits for PickOptions.Wait and then returns an error that wraps ErrNoProxy. When
// some fit but rest or are busy, the error has a method Resting that returns for how long.
func (p *Pool) Pick(ctx context.Context, o PickOptions) (*Lease, error) {
	deadline := time.Now().Add(o.Wait)
	var last *shortage // of the last look; nil before the first
	for {
		if err := p.refreshForPick(ctx, &o); err != nil {
			if last != nil && ctx.Err() != nil { // the wait is over; Redis is not the reason
				err = errors.Join(last.err(), ctx.Err())
			}
			return nil, err
		}
		lease, why := p.picker.pick(&o)
		switch {
		case lease != nil && lease.trial && !p.store.startTrial(ctx, lease.site, lease.Proxy.ID):
			lease.trial = false // another process tries it
			lease.Release()
			o.Except = append(slices.Clip(o.Except), lease.Proxy.ID)
			continue
		case lease != nil:
			return lease, nil
		case o.only != "" && why.busy == 0:
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

// refreshForPick updates the view. While Redis is down, a view with members is used as it is.
func (p *Pool) refreshForPick(ctx context.Context, o *PickOptions) error {
	err := p.view.refresh(ctx, []string{o.Site, o.scope()}, false)
	if err != nil && ctx.Err() == nil && !p.view.empty() {
		p.cfg.Logger.WarnContext(ctx, "the pool cannot be read; using the copy of this process", "err", err)
		return nil
	}
	return err
}

// shortage says why no proxy was picked: how many members could not be, by reason.
type shortage struct {
	total, unfit, cooling, busy, tried, banned int
	back                                       time.Time // when the first of those that cool down may be picked
}

// cools counts a proxy that may be picked again later.
func (s *shortage) cools(until time.Time) {
	s.cooling++
	if s.back.IsZero() || until.Before(s.back) {
		s.back = until
	}
}

// busyFor is the estimate of how long a busy proxy stays busy.
const busyFor = 500 * time.Millisecond

// err is ErrNoProxy and why.
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
	return fmt.Sprintf("of %d in the pool %d do not fit, %d cool down, %d are busy, %d were tried, %d are banned", s.total, s.unfit, s.cooling, s.busy, s.tried, s.banned)
}

// restError is an ErrNoProxy that ends by itself: there are proxies that fit, but not now.
type restError struct {
	error
	after time.Duration
}

// Unwrap returns the cause.
func (e *restError) Unwrap() error { return e.error }

// Resting is how long it is until one of the proxies may be picked.
func (e *restError) Resting() time.Duration { return e.after }

// picker chooses members of a view. It lives as long as the Pool; its maps are guarded by the view's mu.
type picker struct {
	view        *view
	leases      *leases
	maxInFlight int // PoolConfig.MaxInFlight
	stickies    map[string]*sticky
	sessions    map[string]int // proxy → how many sessions use it
}

// sticky is the proxy of the picks with one key.
type sticky struct {
	id    string
	until time.Time
}

func newPicker(v *view, ls *leases, maxInFlight int) *picker {
	return &picker{view: v, leases: ls, maxInFlight: maxInFlight, stickies: map[string]*sticky{}, sessions: map[string]int{}}
}

// search is one search for a proxy.
type search struct {
	*picker
	options   *PickOptions
	site, own *scope // of the site, and where the outcome of the request counts
	now       time.Time
	why       shortage
}

// pick lends a member that suits o and is free. Without one it returns nil and why.
func (p *picker) pick(o *PickOptions) (*Lease, *shortage) {
	p.view.mu.Lock()
	defer p.view.mu.Unlock()
	s := &search{picker: p, options: o, site: p.view.scopeOf(o.Site), own: p.view.scopeOf(o.scope()), now: time.Now()}
	s.why.total = len(p.view.order)
	m := s.choose()
	if m == nil {
		return nil, &s.why
	}
	return p.leases.lend(m, o.scope()), nil
}

// choose returns the member for a search, or nil.
func (s *search) choose() *member {
	if s.options.only != "" {
		return s.member(s.options.only)
	}
	if m := s.stuck(); m != nil {
		return m
	}
	var m *member
	if s.options.apart && len(s.sessions) > 0 {
		m = s.best(func(m *member) bool { return s.sessions[m.ID] == 0 && s.fits(m) })
	}
	if m == nil {
		m = s.best(s.fits)
	}
	if m != nil && s.options.Sticky != "" {
		s.stick(m)
	}
	return m
}

// best returns the better of two members that fit, or one at random: a proxy that failed at first would never be picked
// again otherwise. It looks at some members at random, and then at all.
func (s *search) best(fits func(*member) bool) *member {
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
			s.why = shortage{total: len(order)} // count each member once
		}
		m := order[(start+i)%len(order)]
		if i < samples {
			m = order[rand.IntN(len(order))]
		}
		if m == best || !fits(m) {
			continue
		}
		want--
		if best == nil || weight(m) > weight(best) {
			best = m
		}
	}
	return best
}

// member returns the one with an id, if it fits.
func (s *search) member(id string) *member {
	if m := s.view.members[id]; m != nil && s.fits(m) {
		return m
	}
	return nil
}

// fits reports whether a member can be lent now, and counts the reason if not.
func (s *search) fits(m *member) bool {
	past := s.own.health[m.ID]
	failed := slices.MaxFunc([]time.Time{m.failed, s.own.failed[m.ID], s.site.failed[m.ID]}, time.Time.Compare)
	until := slices.MaxFunc([]time.Time{m.all.Until, past.Until, s.site.health[m.ID].Until, failed.Add(s.leases.every + s.leases.maxAge)}, time.Time.Compare)
	_, banned := s.view.bannedUntil(m.ID, s.options.Site, s.now)
	switch {
	case !s.options.Filter.takes(&m.Proxy):
		s.why.unfit++
	case slices.Contains(s.options.Except, m.ID), s.options.without != "" && m.Protocol == s.options.without:
		s.why.tried++
	case banned:
		s.why.banned++
	case s.now.Before(until):
		s.why.cools(until)
	case m.inFlight >= s.maxInFlight, m.inFlight > 0 && (m.all.Fails > 0 || past.Fails > 0): // one trial at a time
		s.why.busy++
	default:
		return true
	}
	return false
}

// stuck returns the member of the sticky key, if it can be lent now.
func (s *search) stuck() *member {
	last := s.stickies[s.options.Sticky]
	if s.options.Sticky == "" || last == nil || !s.now.Before(last.until) {
		return nil
	}
	return s.member(last.id)
}

// stick assigns a member to the sticky key. The number of keys is bounded.
func (s *search) stick(m *member) {
	const most = 10_000
	if len(s.stickies) >= most {
		for key, last := range s.stickies {
			if !s.now.Before(last.until) {
				delete(s.stickies, key)
			}
		}
		if len(s.stickies) >= most {
			clear(s.stickies)
		}
	}
	o := s.options
	s.stickies[o.Sticky] = &sticky{id: m.ID, until: s.now.Add(cmp.Or(o.StickyFor, 10*time.Minute))}
}

// addSession counts n more sessions that use a proxy.
func (p *picker) addSession(proxy string, n int) {
	p.view.mu.Lock()
	defer p.view.mu.Unlock()
	if p.sessions[proxy] += n; p.sessions[proxy] <= 0 {
		delete(p.sessions, proxy)
	}
}
