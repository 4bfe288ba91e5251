package main

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"muster/proxies"
	"muster/proxies/probe"
	"muster/proxies/source"
)

// orders are the keys that a list can be sorted by; equal ones are sorted by latency.
var orders = map[string]func(a, b proxies.Member) int{
	"latency":  func(proxies.Member, proxies.Member) int { return 0 },
	"score":    func(a, b proxies.Member) int { return cmp.Compare(b.Score, a.Score) },
	"ok":       func(a, b proxies.Member) int { return cmp.Compare(shownHealth(b).OK, shownHealth(a).OK) },
	"requests": func(a, b proxies.Member) int { return cmp.Compare(shownHealth(b).Requests, shownHealth(a).Requests) },
	"checked":  func(a, b proxies.Member) int { return b.CheckedAt.Compare(a.CheckedAt) },
	"country":  func(a, b proxies.Member) int { return strings.Compare(a.Country, b.Country) },
	"protocol": func(a, b proxies.Member) int { return strings.Compare(a.Protocol, b.Protocol) },
}

// shownHealth is the health at the site of the list, if the proxy was used there.
func shownHealth(m proxies.Member) proxies.Health {
	if m.SiteHealth != nil {
		return *m.SiteHealth
	}
	return m.Health
}

// stateOf is the state of a proxy, and when it can be used again.
func stateOf(m proxies.Member, now time.Time) string {
	until := m.Health.Until
	if there := shownHealth(m).Until; there.After(until) {
		until = there
	}
	left := func(until time.Time) string { return until.Sub(now).Round(time.Second).String() }
	switch {
	case m.Banned && m.BannedUntil.IsZero():
		return "banned until lifted"
	case m.Banned:
		return "banned " + left(m.BannedUntil)
	case now.Before(until):
		return "rests " + left(until)
	}
	return "ready"
}

func listCommand(env environment) *cli.Command {
	return &cli.Command{
		Name:  "list",
		Usage: "list the pool, the fastest first",
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "protocol", Usage: "only proxies of one of `P,…`: http, https, socks4, socks4a or socks5"},
			&cli.StringFlag{Name: "country", Usage: "only proxies in one of `CC,…`, two letters each"},
			&cli.StringFlag{Name: "anonymity", Usage: "at least `GRADE`: transparent, anonymous or elite", Value: probe.Anonymous},
			&cli.BoolFlag{Name: "https", Usage: "only proxies that can tunnel TLS"},
			&cli.DurationFlag{Name: "max-latency", Usage: "only proxies with a latency of at most `D`"},
			&cli.StringFlag{Name: "site", Usage: "only proxies that were used at `SITE` or are banned there, with their health and score there"},
			&cli.BoolFlag{Name: "banned", Usage: "only proxies that are banned from all sites, or with --site from that site"},
			&cli.StringFlag{Name: "sort", Usage: "by `ORDER`: latency, score, ok, requests, checked, country or protocol", Value: "latency"},
			&cli.IntFlag{Name: "limit", Usage: "at most `N`"},
			progressFlag(), watchFlag(), jsonFlag(),
		},
		Action: func(c *cli.Context) error { return listProxies(env, c) },
	}
}

// filterOf reads the flags of a list.
func filterOf(c *cli.Context) (proxies.Filter, error) {
	filter := proxies.Filter{Anonymity: c.String("anonymity"), HTTPS: c.Bool("https"), MaxLatency: c.Duration("max-latency"), Banned: true}
	if grades := []string{probe.Transparent, probe.Anonymous, probe.Elite}; !slices.Contains(grades, filter.Anonymity) {
		return filter, usageError{fmt.Errorf("no grade of anonymity %q%s; use %s", filter.Anonymity, suggest(filter.Anonymity, grades), strings.Join(grades, ", "))}
	}
	for p := range strings.FieldsFuncSeq(c.String("protocol"), isComma) {
		if !slices.Contains(source.Protocols, p) {
			return filter, usageError{fmt.Errorf("no protocol %q%s; use one of %s", p, suggest(p, source.Protocols), strings.Join(source.Protocols, ", "))}
		}
		filter.Protocols = append(filter.Protocols, p)
	}
	for country := range strings.FieldsFuncSeq(c.String("country"), isComma) {
		if len(country) != 2 {
			return filter, usageError{fmt.Errorf("country %q: a country has two letters, as in BG", country)}
		}
		filter.Countries = append(filter.Countries, strings.ToUpper(country))
	}
	return filter, nil
}

func isComma(r rune) bool { return r == ',' || r == ' ' }

func listProxies(env environment, c *cli.Context) error {
	if err := arguments(c, 0, 0); err != nil {
		return err
	}
	filter, err := filterOf(c)
	if err != nil {
		return err
	}
	order := orders[c.String("sort")]
	if order == nil {
		names := slices.Sorted(maps.Keys(orders))
		return usageError{fmt.Errorf("no order %q%s; use one of %s", c.String("sort"), suggest(c.String("sort"), names), strings.Join(names, ", "))}
	}
	return withPool(env, c, func(ctx context.Context, pool *proxies.Pool) error {
		site := c.String("site")
		members, err := pool.ListAt(ctx, site, filter)
		if err != nil {
			return err
		}
		list := slices.DeleteFunc(members, func(m proxies.Member) bool {
			return c.Bool("banned") && !m.Banned || site != "" && m.SiteHealth == nil && !m.Banned
		})
		if list == nil {
			list = []proxies.Member{} // [], not null
		}
		slices.SortStableFunc(list, order)
		if limit := c.Int("limit"); limit > 0 {
			list = list[:min(limit, len(list))]
		}
		if c.Bool("json") {
			return printJSON(env.stdout, list)
		}
		now := time.Now()
		t := newTable(env.stdout, "PROXY", "ANONYMITY", "EXIT", "COUNTRY", "HTTPS", "LATENCY", "OK", "REQUESTS", "SCORE", "STATE", "CHECKED")
		t.less = []string{"EXIT", "REQUESTS", "SCORE"}
		for _, m := range list {
			exit := "-"
			if m.Exit.IsValid() {
				exit = m.Exit.String()
			}
			t.row(m.String(), cmp.Or(m.Anonymity, "-"), exit, cmp.Or(m.Country, "-"), httpsWord(m.Can), fmt.Sprintf("%.0f ms", m.LatencyMS),
				fmt.Sprintf("%.0f%%", 100*shownHealth(m).OK), fmt.Sprint(shownHealth(m).Requests), fmt.Sprintf("%.2f", m.Score), stateOf(m, now), age(m.CheckedAt))
		}
		return t.flush()
	})
}
