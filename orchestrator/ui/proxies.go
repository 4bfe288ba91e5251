package ui

import (
	"cmp"
	"context"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"muster/internal/counts"
	"muster/internal/webui"
	"muster/proxies"
)

const (
	poolURL       = prefix + "/proxies"
	sourcesURL    = poolURL + "/sources"
	proxiesOnPage = 50
)

// proxyURL returns the URL of the list with one proxy.
func proxyURL(m proxies.Member) string { return poolURL + "?name=" + url.QueryEscape(m.Proxy.String()) }

type poolData struct {
	proxies.Stats
	webui.Part
	Latencies *webui.Chart
	Filter    *webui.Filter
	Members   []memberRow
}

// memberRow is a member in a list.
type memberRow struct {
	proxies.Member
	State string
	Until time.Time // automatic end of the state, or zero
}

// States of a member.
const (
	ready  = "ready"
	rests  = "rests"
	banned = "banned"
	seen   = "unusable" // reveals the client's address
)

// memberOf returns the row of a member at a time.
func memberOf(m proxies.Member, now time.Time) memberRow {
	row := memberRow{Member: m, State: ready}
	switch {
	case m.Banned:
		row.State, row.Until = banned, m.BannedUntil
	case !m.Proxy.Usable():
		row.State = seen
	case now.Before(m.Health.Until):
		row.State, row.Until = rests, m.Health.Until
	}
	return row
}

func (p *pages) pool(ctx context.Context, r *http.Request) (webui.View, error) {
	q := r.URL.Query()
	var d poolData
	var err error
	if d.Stats, err = p.Proxies.Stats(ctx); err != nil {
		return webui.View{}, err
	}
	members, err := p.Proxies.List(ctx, proxies.Everything)
	if err != nil {
		return webui.View{}, err
	}
	d.Filter, err = webui.NewFilter(q, webui.Field{Name: "name", Label: "Name"}, choice("protocol", "Protocol", namesOf(d.Protocols)), choice("anonymity", "Anonymity", namesOf(d.Anonymity)),
		choice("country", "Country", namesOf(d.Countries)), choice("state", "State", []string{ready, rests, banned, seen}))
	if err != nil {
		return webui.View{}, err
	}
	is := func(name, got string) bool {
		want := d.Filter.Get(name)
		return want == "" || want == cmp.Or(got, "unknown")
	}
	now, name := time.Now(), strings.ToLower(d.Filter.Get("name"))
	var latencies []float64
	for _, m := range members {
		if m.LatencyMS > 0 {
			latencies = append(latencies, m.LatencyMS)
		}
		row := memberOf(m, now)
		if is("protocol", m.Protocol) && is("anonymity", m.Anonymity) && is("country", m.Country) && is("state", row.State) && strings.Contains(strings.ToLower(m.Proxy.String()), name) {
			d.Members = append(d.Members, row)
		}
	}
	if d.Part, err = webui.NewPart(q, proxiesOnPage, len(d.Members)); err != nil {
		return webui.View{}, err
	}
	d.Members = d.Members[d.From:d.To]
	d.Latencies = latencyChart(latencies)
	return webui.View{Name: "Proxies", Data: d, Every: poolEvery(d.Live)}, nil
}

// poolEvery returns the minimum interval of reading the complete pool, about 550 bytes per member: at most 50 kB/s.
func poolEvery(members int) time.Duration { return time.Duration(members) * 12 * time.Millisecond }

// choice returns a field of a filter for one of some values, or for all.
func choice(name, label string, values []string) webui.Field {
	f := webui.Field{Name: name, Label: label, Options: []webui.Option{{Text: "all"}}}
	for _, v := range values {
		f.Options = append(f.Options, webui.Option{Value: v, Text: v})
	}
	return f
}

func namesOf(by map[string]int) []string { return slices.Sorted(maps.Keys(by)) }

// latencySteps are the upper bounds of the histogram buckets, in milliseconds.
var latencySteps = []float64{100, 200, 400, 800, 1600, 3200, 6400}

// latencyChart returns a histogram of latencies.
func latencyChart(latencies []float64) *webui.Chart {
	c := &webui.Chart{Title: "Proxies by latency"}
	counts := make([]int64, len(latencySteps)+1)
	for _, ms := range latencies {
		i, _ := slices.BinarySearch(latencySteps, ms)
		counts[i]++
	}
	for i, n := range counts {
		label := "over " + millis(latencySteps[len(latencySteps)-1])
		if i < len(latencySteps) {
			label = "up to " + millis(latencySteps[i])
		}
		c.Bars = append(c.Bars, webui.Bar{Label: label, Good: n})
	}
	return c
}

type sourceRow struct {
	Name string
	proxies.SourceYield
}

// Left returns the number of skipped entries of the last list by reason.
func (s sourceRow) Left() string { return counts.Text(s.Rejects) }

// sources lists the configured sources and earlier ones; sources without proxies come first.
func (p *pages) sources(ctx context.Context, _ *http.Request) (webui.View, error) {
	yields, err := p.Proxies.Yields(ctx)
	if err != nil {
		return webui.View{}, err
	}
	for _, name := range p.Proxies.SourceNames() {
		if _, ok := yields[name]; !ok {
			yields[name] = proxies.SourceYield{}
		}
	}
	var all []sourceRow
	for name, y := range yields {
		all = append(all, sourceRow{name, y})
	}
	slices.SortFunc(all, func(a, b sourceRow) int {
		return cmp.Or(b.DryFor-a.DryFor, strings.Compare(b.Error, a.Error), strings.Compare(a.Name, b.Name))
	})
	return webui.View{Name: "Sources", Data: all}, nil
}
