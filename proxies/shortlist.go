package proxies

import (
	"fmt"
	"math/rand/v2"
	"slices"
)

// shortlist is the members that a filter takes. It is made once for each state of the view, so that a pick need not scan
// all members.
type shortlist struct {
	members   []*member // in no order, for random access
	byLatency []*member // made when needed
	cursor    int       // of round-robin
}

// maxShortlists bounds how many filters are remembered.
const maxShortlists = 64

// shortlist returns that of a filter. The caller holds the view's mu.
func (p *picker) shortlist(f *Filter) *shortlist {
	if p.listed != p.view.changed { // some member has changed
		for key, list := range p.shortlists {
			p.shortlists[key] = &shortlist{cursor: list.cursor}
		}
		p.listed = p.view.changed
	}
	key := f.key()
	list := p.shortlists[key]
	if list == nil {
		if len(p.shortlists) >= maxShortlists {
			clear(p.shortlists)
		}
		list = &shortlist{}
		p.shortlists[key] = list
	}
	if list.members == nil {
		list.members = make([]*member, 0, 16)
		for _, m := range p.view.order {
			if f.takes(&m.Proxy) {
				list.members = append(list.members, m)
			}
		}
	}
	return list
}

// fastest returns the members with the fastest first.
func (l *shortlist) fastest() []*member {
	if l.byLatency == nil {
		l.byLatency = slices.Clone(l.members)
		slices.SortFunc(l.byLatency, func(a, b *member) int { return compareLatency(a.Proxy, b.Proxy) })
	}
	return l.byLatency
}

// choose picks by the strategy of a search, with a bounded number of samples; nil when none of them fits.
func (l *shortlist) choose(s *search, fits func(*member) bool) *member {
	if len(l.members) == 0 {
		return nil
	}
	switch s.options.Strategy {
	case RoundRobin:
		return l.next(fits)
	case Random:
		return l.sample(1, 16, fits, nil)
	case LeastUsed:
		return l.sample(16, 32, fits, func(a, b *member) bool { return a.uses < b.uses })
	case Fastest:
		byLatency := l.fastest()
		return firstOf(byLatency[:min(len(byLatency), 256)], fits)
	}
	if rand.IntN(20) == 0 { // or a proxy that failed at first would never be picked again
		return l.sample(1, 16, fits, nil)
	}
	weight := func(m *member) float64 {
		return score(m.all, s.site.health[m.ID], m.LatencyMS, s.now) / float64(1+m.inFlight)
	}
	return l.sample(2, 24, fits, func(a, b *member) bool { return weight(a) > weight(b) })
}

// sample returns the best of want members that fit, among at most tries at random.
func (l *shortlist) sample(want, tries int, fits func(*member) bool, better func(a, b *member) bool) *member {
	var best *member
	for range tries {
		m := l.members[rand.IntN(len(l.members))]
		if m == best || !fits(m) {
			continue
		}
		if best == nil || better(m, best) {
			best = m
		}
		if want--; want == 0 {
			break
		}
	}
	return best
}

// next returns the first that fits of the 64 members after the last one picked.
func (l *shortlist) next(fits func(*member) bool) *member {
	for range min(len(l.members), 64) {
		l.cursor++
		if m := l.members[l.cursor%len(l.members)]; fits(m) {
			return m
		}
	}
	return nil
}

// scan goes once around all members from a random place.
func (l *shortlist) scan(fits func(*member) bool) *member {
	if len(l.members) == 0 {
		return nil
	}
	start := rand.IntN(len(l.members))
	if m := firstOf(l.members[start:], fits); m != nil {
		return m
	}
	return firstOf(l.members[:start], fits)
}

func firstOf(members []*member, fits func(*member) bool) *member {
	if i := slices.IndexFunc(members, fits); i >= 0 {
		return members[i]
	}
	return nil
}

// key is the same for filters that take the same, and cheap for the usual one.
func (f *Filter) key() string {
	if len(f.Protocols)+len(f.Countries)+len(f.ExcludeASN) == 0 && f.Anonymity == "" && !f.HTTPS && !f.Connect && !f.Plain && f.MaxLatency == 0 && f.MaxTier == 0 {
		return ""
	}
	return fmt.Sprintf("%q %q %s %t %t %t %d %d %d", f.Protocols, f.Countries, f.Anonymity, f.HTTPS, f.Connect, f.Plain, f.MaxLatency, f.ExcludeASN, f.MaxTier)
}
