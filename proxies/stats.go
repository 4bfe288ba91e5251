package proxies

import (
	"context"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"
)

// Stats is a pool in numbers.
type Stats struct {
	Status
	Live      int            `json:"live"`      // in the pool
	Usable    int            `json:"usable"`    // of them, hiding our address and not banned
	Ready     int            `json:"ready"`     // of these, not cooling down
	Cooling   int            `json:"cooling"`   // of the usable ones
	Banned    int            `json:"banned"`    // from all sites
	SiteBans  map[string]int `json:"site_bans"` // how many are banned from a site, by site
	Archived  int            `json:"archived"`  // taken out within the last day
	Protocols map[string]int `json:"protocols"`
	Anonymity map[string]int `json:"anonymity"`
	Countries map[string]int `json:"countries"`
	HTTPS     int            `json:"https"`    // known to let TLS through
	Rotating  int            `json:"rotating"` // whose exit changes
	Latency   Percentiles    `json:"latency_ms"`
	Requests  int            `json:"requests"` // counted over all members
}

// Percentiles are of the usable members' latency in milliseconds, of those for which one is known.
type Percentiles struct {
	P50 float64 `json:"p50"`
	P90 float64 `json:"p90"`
	P99 float64 `json:"p99"`
}

// Stats counts the pool.
func (p *Pool) Stats(ctx context.Context) (Stats, error) {
	status, err := p.Status(ctx)
	if err != nil {
		return Stats{}, err
	}
	s := Stats{Status: status, Protocols: map[string]int{}, Anonymity: map[string]int{}, Countries: map[string]int{}, SiteBans: map[string]int{}}
	members, err := p.List(ctx, Everything)
	if err != nil {
		return s, err
	}
	archived, err := p.rdb.HLen(ctx, archivedKey(p.cfg.Name)).Result()
	if err != nil {
		return s, fmt.Errorf("count archived proxies: %w", err)
	}
	s.Archived, s.Live = int(archived), len(members)
	bans, err := p.Bans(ctx)
	if err != nil {
		return s, err
	}
	for _, ban := range bans {
		if ban.Site != "" && p.has(ban.ID) {
			s.SiteBans[ban.Site]++
		}
	}
	now := time.Now()
	var latencies []float64
	for _, m := range members {
		s.Protocols[m.Protocol]++
		s.Anonymity[orUnknown(m.Anonymity)]++
		s.Countries[orUnknown(m.Country)]++
		s.Requests += m.Health.Requests
		if m.Can.HTTPS {
			s.HTTPS++
		}
		if m.Rotating {
			s.Rotating++
		}
		switch {
		case m.Banned:
			s.Banned++
			continue
		case !m.Proxy.Usable():
			continue
		case now.Before(m.Health.Until):
			s.Cooling++
		default:
			s.Ready++
		}
		if m.LatencyMS > 0 {
			latencies = append(latencies, m.LatencyMS)
		}
	}
	s.Usable = s.Ready + s.Cooling
	s.Latency = percentiles(latencies)
	return s, nil
}

func orUnknown(word string) string {
	if word == "" {
		return "unknown"
	}
	return word
}

func percentiles(values []float64) Percentiles {
	if len(values) == 0 {
		return Percentiles{}
	}
	slices.Sort(values)
	at := func(share float64) float64 { return values[min(len(values)-1, int(share*float64(len(values))))] }
	return Percentiles{P50: at(0.5), P90: at(0.9), P99: at(0.99)}
}

// Find returns the members that a person means by a name: the one that is listed so, by its id or its URL without the
// password, or else all that a URL with or without credentials, a host:port or a host stands for.
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
	name = strings.ToLower(name)
	scheme, rest, ok := strings.Cut(name, "://")
	if !ok {
		scheme, rest = "", name
	}
	user, address, ok := cutLast(rest, "@")
	if !ok {
		user, address = "", rest
	}
	user, _, _ = strings.Cut(user, ":")
	if plain, err := url.PathUnescape(user); err == nil {
		user = strings.ToLower(plain)
	}
	return slices.DeleteFunc(members, func(m Member) bool {
		endpoint := strings.ToLower(m.Candidate().Address())
		return scheme != "" && scheme != m.Protocol || user != "" && user != strings.ToLower(m.Username) ||
			address != endpoint && address != strings.ToLower(m.Host)
	}), nil
}

func cutLast(s, sep string) (before, after string, found bool) {
	if i := strings.LastIndex(s, sep); i >= 0 {
		return s[:i], s[i+len(sep):], true
	}
	return s, "", false
}
