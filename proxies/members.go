package proxies

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"
)

// Usable returns the number of proxies of the pool that hide our address and are not banned from all sites.
func (p *Pool) Usable(ctx context.Context) (int, error) {
	if err := p.view.refresh(ctx, nil, true); err != nil {
		return 0, fmt.Errorf("count usable proxies: %w", err)
	}
	return len(p.view.list("", Filter{}, time.Now())), nil
}

// Member is a proxy with its health over all sites and, if a list names a site, at that site.
type Member struct {
	Proxy
	Health      Health    `json:"health"`
	SiteHealth  *Health   `json:"site_health,omitempty"` // nil if the site has not used the proxy
	Score       float64   `json:"score"`                 // the weight in a pick for the site of the list
	Banned      bool      `json:"banned,omitzero"`       // from all sites, which excludes it from Usable and Export, or from the site of the list
	BannedUntil time.Time `json:"banned_until,omitzero"` // zero means forever
}

// ShownHealth returns the health at the site of the list if the proxy was used there, otherwise the health over all
// sites.
func (m Member) ShownHealth() Health {
	if m.SiteHealth != nil {
		return *m.SiteHealth
	}
	return m.Health
}

// MarshalJSON omits the password, because listings are displayed. Export includes it.
func (m Member) MarshalJSON() ([]byte, error) {
	type plain Member
	m.Password = ""
	return json.Marshal(plain(m))
}

// List returns the proxies selected by f, sorted by latency, those without a latency last.
func (p *Pool) List(ctx context.Context, f Filter) ([]Member, error) {
	return p.ListAt(ctx, "", f)
}

// ListAt is like List, with the health and bans at a site. With "" it is the same as List.
func (p *Pool) ListAt(ctx context.Context, site string, f Filter) ([]Member, error) {
	if err := p.view.refresh(ctx, []string{site}, true); err != nil {
		return nil, fmt.Errorf("list proxies: %w", err)
	}
	out := p.view.list(site, f, time.Now())
	slices.SortFunc(out, func(a, b Member) int { return compareLatency(a.Proxy, b.Proxy) })
	return out, nil
}

// list returns the members selected by f, in no particular order.
func (v *view) list(site string, f Filter, now time.Time) []Member {
	v.mu.Lock()
	defer v.mu.Unlock()
	seen := v.scopeOf(site).health
	var out []Member
	for _, m := range v.order {
		until, banned := v.bannedUntil(m.ID, site, now)
		if !f.matches(&m.Proxy) || banned && !f.Banned {
			continue
		}
		member := Member{Proxy: m.Proxy, Health: m.all, Score: score(m.all, seen[m.ID], m.LatencyMS, now), Banned: banned, BannedUntil: until}
		if h, ok := seen[m.ID]; ok {
			member.SiteHealth = &h
		}
		out = append(out, member)
	}
	return out
}

// Find returns the members that match a name: the member with that ID or URL without password, otherwise all that
// match a URL with or without credentials, a host:port or a host.
func (p *Pool) Find(ctx context.Context, name string) ([]Member, error) {
	members, err := p.List(ctx, Everything)
	if err != nil {
		return nil, err
	}
	name = strings.TrimSuffix(strings.TrimSpace(name), "/")
	for _, m := range members {
		if m.ID == name || m.String() == name {
			return []Member{m}, nil
		}
	}
	return slices.DeleteFunc(members, func(m Member) bool {
		address, scheme := m.Address(), m.Protocol+"://"
		forms := []string{address, m.Host, scheme + address, scheme + url.User(m.Username).String() + "@" + address, m.URL().String()}
		return !slices.ContainsFunc(forms, func(form string) bool { return strings.EqualFold(form, name) })
	}), nil
}
