package proxies

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"
)

// shortlist is the members that a filter takes. It is made once for each state of the pool, so that a pick looks at those
// alone, however few of many they are.
type shortlist struct {
	members   []*member // in no order, for random access
	byLatency []*member // made when needed
	cursor    int       // of round-robin
}

// maxShortlists bounds how many filters are remembered.
const maxShortlists = 64

// shortlist returns that of a filter. The caller holds mu.
func (p *Pool) shortlist(f *Filter) *shortlist {
	if p.listed != p.changed { // some member is not what it was
		for key, list := range p.shortlists {
			p.shortlists[key] = &shortlist{cursor: list.cursor}
		}
		p.listed = p.changed
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
		for _, m := range p.order {
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

// choose picks by strategy with a bounded look; nil when it met none that fits.
func (l *shortlist) choose(strategy Strategy, site *scope, fits func(*member) bool, now time.Time) *member {
	if len(l.members) == 0 {
		return nil
	}
	sample := func(want, tries int, better func(a, b *member) bool) *member {
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
	weigh := func(m *member) float64 {
		return score(m.all, site.health[m.ID], m.LatencyMS, now) / float64(1+m.inFlight)
	}
	switch strategy {
	case RoundRobin:
		for range min(len(l.members), 64) {
			l.cursor++
			if m := l.members[l.cursor%len(l.members)]; fits(m) {
				return m
			}
		}
		return nil
	case Random:
		return sample(1, 16, nil)
	case LeastUsed:
		return sample(16, 32, func(a, b *member) bool { return a.uses < b.uses })
	case Fastest:
		byLatency := l.fastest()
		for _, m := range byLatency[:min(len(byLatency), 256)] {
			if fits(m) {
				return m
			}
		}
		return nil
	}
	if rand.IntN(20) == 0 { // or one that had bad luck at first would never be seen again
		return sample(1, 16, nil)
	}
	return sample(2, 24, func(a, b *member) bool { return weigh(a) > weigh(b) })
}

// scan goes once around all members from a random place.
func (l *shortlist) scan(fits func(*member) bool) *member {
	var found *member
	if n := len(l.members); n > 0 {
		start := rand.IntN(n)
		for i := range n {
			if m := l.members[(start+i)%n]; fits(m) && found == nil {
				found = m
				break
			}
		}
	}
	return found
}

// key is the same for filters that take the same, and cheap for the usual one.
func (f *Filter) key() string {
	if len(f.Protocols)+len(f.Countries)+len(f.ExcludeASN) == 0 && f.Anonymity == "" && !f.HTTPS && !f.Connect && !f.Plain && f.MaxLatency == 0 && f.MaxTier == 0 {
		return ""
	}
	return fmt.Sprintf("%q %q %s %t %t %t %d %d %d", f.Protocols, f.Countries, f.Anonymity, f.HTTPS, f.Connect, f.Plain, f.MaxLatency, f.ExcludeASN, f.MaxTier)
}
