package main

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"muster/proxies"
	"muster/proxies/probe"
	"muster/proxies/source"
)

// orders are what a list can be sorted by; ties go by latency.
var orders = map[string]func(a, b proxies.Member) int{
	"latency":  func(proxies.Member, proxies.Member) int { return 0 },
	"score":    func(a, b proxies.Member) int { return cmp.Compare(b.Score, a.Score) },
	"ok":       func(a, b proxies.Member) int { return cmp.Compare(shownHealth(b).OK, shownHealth(a).OK) },
	"requests": func(a, b proxies.Member) int { return cmp.Compare(shownHealth(b).Requests, shownHealth(a).Requests) },
	"checked":  func(a, b proxies.Member) int { return b.CheckedAt.Compare(a.CheckedAt) },
	"country":  func(a, b proxies.Member) int { return strings.Compare(a.Country, b.Country) },
	"protocol": func(a, b proxies.Member) int { return strings.Compare(a.Protocol, b.Protocol) },
}

// shownHealth is the health at the site of the list, if it has seen the proxy.
func shownHealth(m proxies.Member) proxies.Health {
	if m.SiteHealth != nil {
		return *m.SiteHealth
	}
	return m.Health
}

// stateOf is whether a proxy can be used now, and when it can.
func stateOf(m proxies.Member, now time.Time) string {
	until := m.Health.Until
	if there := shownHealth(m).Until; there.After(until) {
		until = there
	}
	left := func(until time.Time) string { return until.Sub(now).Round(time.Second).String() }
	switch {
	case m.Banned && m.BannedUntil.IsZero():
		return "banned for good"
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
			&cli.StringFlag{Name: "protocol", Usage: "only those that speak one of `P,…`: http, https, socks4, socks4a or socks5"},
			&cli.StringFlag{Name: "country", Usage: "only those of one of `CC,…`, two letters each"},
			&cli.StringFlag{Name: "anonymity", Usage: "at least `GRADE`: transparent, anonymous or elite", Value: probe.Anonymous},
			&cli.BoolFlag{Name: "https", Usage: "only those through which TLS gets"},
			&cli.DurationFlag{Name: "max-latency", Usage: "only those that answer within `D`"},
			&cli.StringFlag{Name: "site", Usage: "only those that `SITE` has seen or that are banned from it, with their health and score there"},
			&cli.BoolFlag{Name: "banned", Usage: "only those that are banned from all sites, or with --site from that site"},
			&cli.StringFlag{Name: "sort", Usage: "by `ORDER`: latency, score, ok, requests, checked, country or protocol", Value: "latency"},
			&cli.IntFlag{Name: "limit", Usage: "at most `N`"},
			progressFlag(), jsonFlag(),
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
		for _, m := range list {
			exit := "-"
			if m.Exit.IsValid() {
				exit = m.Exit.String()
			}
			t.row(m.String(), cmp.Or(m.Anonymity, "-"), exit, cmp.Or(m.Country, "-"), httpsWord(m.Can), fmt.Sprintf("%.0f ms", m.LatencyMS),
				fmt.Sprintf("%.0f%%", 100*shownHealth(m).OK), fmt.Sprint(shownHealth(m).Requests), fmt.Sprintf("%.2f", m.Score), stateOf(m, now), since(m.CheckedAt))
		}
		return t.flush()
	})
}

// httpsWord says whether https gets through a proxy; "?" when a check could not see it.
func httpsWord(can probe.Capabilities) string {
	switch {
	case can.HTTPS:
		return "yes"
	case can.HTTPSUnknown:
		return "?"
	}
	return "no"
}

func countProxies(env environment, c *cli.Context) error {
	if err := arguments(c, 0, 0); err != nil {
		return err
	}
	return withPool(env, c, func(ctx context.Context, pool *proxies.Pool) error {
		live, err := pool.Count(ctx)
		if err != nil {
			return err
		}
		usable, err := pool.Usable(ctx)
		if err != nil {
			return err
		}
		if c.Bool("json") {
			return printJSON(env.stdout, map[string]int{"live": live, "usable": usable})
		}
		fmt.Fprintf(env.stdout, "%d live, %d usable\n", live, usable)
		return nil
	})
}

func statsProxies(env environment, c *cli.Context) error {
	if err := arguments(c, 0, 0); err != nil {
		return err
	}
	return withPool(env, c, func(ctx context.Context, pool *proxies.Pool) error {
		s, err := pool.Stats(ctx)
		if err != nil {
			return err
		}
		if c.Bool("json") {
			return printJSON(env.stdout, s)
		}
		t := newTable(env.stdout, "POOL", "")
		t.row("live", fmt.Sprint(s.Live))
		t.row("usable", fmt.Sprintf("%d (%d ready, %d rest)", s.Usable, s.Ready, s.Cooling))
		t.row("banned from all sites", fmt.Sprint(s.Banned))
		t.row("banned from a site", counts(s.SiteBans))
		t.row("taken out today", fmt.Sprint(s.Archived))
		t.row("protocols", counts(s.Protocols))
		t.row("anonymity", counts(s.Anonymity))
		t.row("countries", counts(s.Countries))
		t.row("https", fmt.Sprint(s.HTTPS))
		t.row("rotating exits", fmt.Sprint(s.Rotating))
		t.row("latency", fmt.Sprintf("median %.0f ms, 90%% %.0f ms, 99%% %.0f ms", s.Latency.P50, s.Latency.P90, s.Latency.P99))
		t.row("requests", fmt.Sprint(s.Requests))
		refreshed := since(s.RefreshedAt)
		if s.Stale {
			refreshed += ", STALE: the last refresh found nothing"
		}
		t.row("refreshed", refreshed)
		return t.flush()
	})
}

// counts lists numbers by name, the largest first, the tail together.
func counts[K ~string](by map[K]int) string {
	names := slices.SortedFunc(maps.Keys(by), func(a, b K) int { return cmp.Or(by[b]-by[a], cmp.Compare(a, b)) })
	var words []string
	rest := 0
	for i, name := range names {
		if i >= 8 {
			rest += by[name]
			continue
		}
		words = append(words, fmt.Sprintf("%s %d", name, by[name]))
	}
	if rest > 0 {
		words = append(words, fmt.Sprintf("others %d", rest))
	}
	if len(words) == 0 {
		return "-"
	}
	return strings.Join(words, ", ")
}

func removeCommand(env environment) *cli.Command {
	return &cli.Command{
		Name:      "remove",
		Usage:     "take proxies out of the pool",
		ArgsUsage: "PROXY…",
		Description: `A PROXY is named as the list shows it, without its password, as host:port, or as
a host alone for all of its ports. One that still stands in a source comes back with the next refresh
if it works: use ban to keep it away.`,
		Flags: []cli.Flag{progressFlag(), jsonFlag()},
		Action: func(c *cli.Context) error {
			return onMembers(env, c, "removed", func(ctx context.Context, pool *proxies.Pool, ids []string) (int, error) {
				return pool.Remove(ctx, ids...)
			})
		},
	}
}

func banCommand(env environment) *cli.Command {
	return &cli.Command{
		Name:      "ban",
		Usage:     "keep proxies from a site, or from all",
		ArgsUsage: "PROXY…",
		Description: `A PROXY is named as the list shows it, without its password, as host:port, or as
a host alone for all of its ports. See who is banned from a site with
muster proxies list --site SITE --banned.`,
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "site", Usage: "from `SITE` alone", DefaultText: "all"},
			&cli.DurationFlag{Name: "for", Usage: "for `D`", DefaultText: "for good"},
			&cli.BoolFlag{Name: "lift", Usage: "end a ban"},
			progressFlag(), jsonFlag(),
		},
		Action: func(c *cli.Context) error {
			if c.Duration("for") < 0 {
				return usageError{fmt.Errorf("proxies ban: --for %s lies in the past", c.Duration("for"))}
			}
			if c.Bool("lift") {
				return onMembers(env, c, "free again", func(ctx context.Context, pool *proxies.Pool, ids []string) (int, error) {
					return pool.Unban(ctx, c.String("site"), ids...)
				})
			}
			return onMembers(env, c, "banned", func(ctx context.Context, pool *proxies.Pool, ids []string) (int, error) {
				return len(ids), pool.Ban(ctx, c.String("site"), c.Duration("for"), ids...)
			})
		},
	}
}

// onMembers does something to the proxies that a command names. A name of none is an error, and then nothing is done.
func onMembers(env environment, c *cli.Context, done string, do func(context.Context, *proxies.Pool, []string) (int, error)) error {
	if err := arguments(c, 1, -1); err != nil {
		return err
	}
	return withPool(env, c, func(ctx context.Context, pool *proxies.Pool) error {
		var ids []string
		for _, name := range c.Args().Slice() {
			found, err := pool.Find(ctx, name)
			if err != nil {
				return err
			}
			if len(found) == 0 {
				return fmt.Errorf("no proxy %s in the pool; see muster proxies list --anonymity transparent", withoutPassword(name))
			}
			for _, m := range found {
				ids = append(ids, m.ID)
			}
		}
		slices.Sort(ids)
		n, err := do(ctx, pool, slices.Compact(ids))
		if err != nil {
			return err
		}
		if c.Bool("json") {
			return printJSON(env.stdout, map[string]any{"done": n, "proxies": slices.Compact(ids)})
		}
		fmt.Fprintf(env.stdout, "%d %s\n", n, done)
		return nil
	})
}

// withoutPassword is a word that should name a proxy, for a message: what may be a password in it is left out.
func withoutPassword(word string) string {
	scheme, rest, ok := strings.Cut(word, "://")
	if !ok {
		scheme, rest = "", word
	} else {
		scheme += "://"
	}
	if i := strings.LastIndex(rest, "@"); i >= 0 {
		address := rest[i+1:]
		if host, _, _ := strings.Cut(address, ":"); !strings.ContainsAny(host, ".[") { // host:port@user:password
			address = "***"
		}
		return scheme + "***@" + address
	}
	if _, err := netip.ParseAddr(rest); err == nil {
		return word
	}
	if host, more, ok := strings.Cut(rest, ":"); ok && strings.Contains(more, ":") && !strings.ContainsAny(rest, "[/") {
		return scheme + host + ":***" // host:port:user:password
	}
	return word
}

// since is how long ago something was, in the largest unit that fits.
func since(at time.Time) string {
	switch d := time.Since(at); {
	case at.IsZero():
		return "never"
	case d < time.Minute:
		return fmt.Sprintf("%d s ago", int(d.Seconds()))
	case d < time.Hour:
		return fmt.Sprintf("%d min ago", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%d h ago", int(d.Hours()))
	default:
		return fmt.Sprintf("%d days ago", int(d.Hours())/24)
	}
}
