package proxies

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"
)

// Stats holds statistics of a pool.
type Stats struct {
	Status
	Live      int            `json:"live"`      // in the pool
	Usable    int            `json:"usable"`    // live, not transparent and not banned
	Ready     int            `json:"ready"`     // usable and not cooling down
	Cooling   int            `json:"cooling"`   // usable and cooling down
	Banned    int            `json:"banned"`    // from all sites
	SiteBans  map[string]int `json:"site_bans"` // number of proxies banned from each site
	Protocols map[string]int `json:"protocols"`
	Anonymity map[string]int `json:"anonymity"`
	Countries map[string]int `json:"countries"`
	HTTPS     int            `json:"https"`    // known to support HTTPS
	Rotating  int            `json:"rotating"` // with a changing exit address
	Latency   Percentiles    `json:"latency_ms"`
	Requests  int            `json:"requests"` // total of all members
}

// Percentiles are the percentiles of the known latencies of usable members, in milliseconds.
type Percentiles struct {
	P50 float64 `json:"p50"`
	P90 float64 `json:"p90"`
	P99 float64 `json:"p99"`
}

// Stats returns the statistics of the pool.
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
	s.Live = len(members)
	bans, err := p.bans(ctx)
	if err != nil {
		return s, err
	}
	for field := range bans {
		if id, site, ok := strings.Cut(field, " "); ok && p.view.has(id) {
			s.SiteBans[site]++
		}
	}
	now := time.Now()
	var latencies []float64
	for _, m := range members {
		s.Protocols[m.Protocol]++
		s.Anonymity[cmp.Or(m.Anonymity, "unknown")]++
		s.Countries[cmp.Or(m.Country, "unknown")]++
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

func percentiles(values []float64) Percentiles {
	if len(values) == 0 {
		return Percentiles{}
	}
	slices.Sort(values)
	at := func(share float64) float64 { return values[min(len(values)-1, int(share*float64(len(values))))] }
	return Percentiles{P50: at(0.5), P90: at(0.9), P99: at(0.99)}
}
