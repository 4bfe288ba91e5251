package ui

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"muster/internal/webui"
	"muster/proxies"
	"muster/proxies/source"
)

const (
	poolURL       = prefix + "/proxies"
	sourcesURL    = poolURL + "/sources"
	proxiesOnPage = 50
	shownShares   = 8 // values per category
)

var everything = proxies.Everything

// proxyURL returns the URL of the list with one proxy.
func proxyURL(m proxies.Member) string { return poolURL + "?name=" + url.QueryEscape(m.Proxy.String()) }

// poolPages are the pages of the pool.
type poolPages struct{ *pages }

func (p poolPages) serve() {
	if p.cfg.Proxies == nil {
		return
	}
	p.page("/proxies", "proxies", p.pool)
	p.page("/proxies/sources", "sources", p.sources)
	p.actions(p.proxyActions())
}

type poolData struct {
	proxies.Stats
	By       []shares
	Latency  webui.Chart
	Filter   *webui.Filter
	Members  []memberRow
	Selected int // number of filtered members
	Newer    string
	Older    string
}

// shares counts the members of a pool by value, most frequent first.
type shares struct {
	Title string
	List  []portion
	Rest  int // members with other values
}

type portion struct {
	Name  string
	Count int
	Share float64
}

// poolFilter selects members by their properties; "" means all.
type poolFilter struct{ Protocol, Anonymity, Country, State, Name string }

// memberRow is a member in a list.
type memberRow struct {
	proxies.Member
	URL, State string    // URL is the prefix of its actions
	Until      time.Time // automatic end of the state, or zero
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
	row := memberRow{Member: m, URL: poolURL + "/" + url.PathEscape(m.ID), State: ready}
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

func (f poolFilter) selects(m *memberRow) bool {
	is := func(want, got string) bool { return want == "" || want == cmp.Or(got, "unknown") }
	return is(f.Protocol, m.Protocol) && is(f.Anonymity, m.Anonymity) && is(f.Country, m.Country) && is(f.State, m.State) &&
		(f.Name == "" || strings.Contains(strings.ToLower(m.Proxy.String()), strings.ToLower(f.Name)))
}

func (p poolPages) pool(ctx context.Context, r *http.Request) (webui.View, error) {
	q := r.URL.Query()
	from, err := offset(q)
	if err != nil {
		return webui.View{}, err
	}
	filter := poolFilter{q.Get("protocol"), q.Get("anonymity"), q.Get("country"), q.Get("state"), strings.TrimSpace(q.Get("name"))}
	var d poolData
	if d.Stats, err = p.cfg.Proxies.Stats(ctx); err != nil {
		return webui.View{}, err
	}
	members, err := p.cfg.Proxies.List(ctx, everything)
	if err != nil {
		return webui.View{}, err
	}
	now := time.Now()
	var latencies []float64
	for _, m := range members {
		row := memberOf(m, now)
		if m.LatencyMS > 0 {
			latencies = append(latencies, m.LatencyMS)
		}
		if !filter.selects(&row) {
			continue
		}
		if d.Selected >= from && len(d.Members) < proxiesOnPage {
			d.Members = append(d.Members, row)
		}
		d.Selected++
	}
	d.Latency = latencyChart(latencies)
	d.By = []shares{sharesOf("Protocol", d.Protocols, d.Live), sharesOf("Anonymity", d.Anonymity, d.Live), sharesOf("Country", d.Countries, d.Live)}
	d.Filter = webui.NewFilter(q, webui.Field{Name: "name", Label: "Name"}, choice("protocol", "Protocol", namesOf(d.Protocols)), choice("anonymity", "Anonymity", namesOf(d.Anonymity)),
		choice("country", "Country", namesOf(d.Countries)), choice("state", "State", []string{ready, rests, banned, seen}))
	d.Newer, d.Older = turns(q, from, proxiesOnPage, d.Selected)
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

// sharesOf counts the members of a pool.
func sharesOf(title string, by map[string]int, all int) shares {
	s := shares{Title: title}
	for _, name := range slices.SortedFunc(maps.Keys(by), func(a, b string) int { return cmp.Or(by[b]-by[a], cmp.Compare(a, b)) }) {
		if len(s.List) == shownShares {
			s.Rest += by[name]
			continue
		}
		s.List = append(s.List, portion{name, by[name], float64(by[name]) / float64(max(all, 1))})
	}
	return s
}

// latencySteps are the upper bounds of the histogram buckets, in milliseconds.
var latencySteps = []float64{100, 200, 400, 800, 1600, 3200, 6400}

// latencyChart returns a histogram of latencies.
func latencyChart(latencies []float64) webui.Chart {
	c := webui.Chart{Title: "Proxies by latency"}
	counts := make([]int64, len(latencySteps)+1)
	for _, ms := range latencies {
		i, _ := slices.BinarySearch(latencySteps, ms)
		counts[i]++
	}
	for i, n := range counts {
		label := fmt.Sprintf("over %s: %d", millis(latencySteps[len(latencySteps)-1]), n)
		if i < len(latencySteps) {
			label = fmt.Sprintf("up to %s: %d", millis(latencySteps[i]), n)
		}
		c.Bars = append(c.Bars, webui.Bar{Label: label, Good: n})
	}
	return c
}

type sourceRow struct {
	Name string
	proxies.SourceYield
}

// Left returns the number of skipped entries of the last list.
func (s sourceRow) Left() string {
	var parts []string
	for _, reason := range slices.SortedFunc(maps.Keys(s.Rejects), func(a, b source.Reject) int { return s.Rejects[b] - s.Rejects[a] }) {
		parts = append(parts, fmt.Sprintf("%s %d", reason, s.Rejects[reason]))
	}
	return strings.Join(parts, ", ")
}

// mostSources limits the sources on a page.
const mostSources = 200

type sourcesData struct {
	Sources []sourceRow
	More    int
}

// sources lists the configured sources and earlier ones; sources without proxies come first.
func (p poolPages) sources(ctx context.Context, _ *http.Request) (webui.View, error) {
	yields, err := p.cfg.Proxies.Yields(ctx)
	if err != nil {
		return webui.View{}, err
	}
	for _, name := range p.cfg.Proxies.SourceNames() {
		if _, ok := yields[name]; !ok {
			yields[name] = proxies.SourceYield{}
		}
	}
	var d sourcesData
	for name, y := range yields {
		d.Sources = append(d.Sources, sourceRow{name, y})
	}
	slices.SortFunc(d.Sources, func(a, b sourceRow) int {
		return cmp.Or(b.DryFor-a.DryFor, strings.Compare(b.Error, a.Error), strings.Compare(a.Name, b.Name))
	})
	d.More = max(len(d.Sources)-mostSources, 0)
	d.Sources = d.Sources[:len(d.Sources)-d.More]
	return webui.View{Name: "Sources", Data: d}, nil
}
