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

// orders are what a list can be sorted by; ties go by latency.
var orders = map[string]func(a, b listed) int{
	"latency":  func(listed, listed) int { return 0 },
	"score":    func(a, b listed) int { return cmp.Compare(b.Score, a.Score) },
	"ok":       func(a, b listed) int { return cmp.Compare(b.health().OK, a.health().OK) },
	"requests": func(a, b listed) int { return cmp.Compare(b.health().Requests, a.health().Requests) },
	"checked":  func(a, b listed) int { return b.CheckedAt.Compare(a.CheckedAt) },
	"country":  func(a, b listed) int { return strings.Compare(a.Country, b.Country) },
	"protocol": func(a, b listed) int { return strings.Compare(a.Protocol, b.Protocol) },
}

// listed is a proxy of a list, with its health at a site if one was named.
type listed struct {
	proxies.Member
	Site *proxies.Health
}

// MarshalJSON is that of the member, with the site's health beside.
func (l listed) MarshalJSON() ([]byte, error) { return l.Member.WithSite(l.Site) }

func (l listed) health() proxies.Health {
	if l.Site != nil {
		return *l.Site
	}
	return l.Health
}

// state is whether the proxy can be used now.
func (l listed) state(now time.Time) string {
	until := l.Health.Until
	if l.Site != nil && l.Site.Until.After(until) {
		until = l.Site.Until
	}
	switch {
	case l.Banned:
		return "banned"
	case now.Before(until):
		return "rests " + until.Sub(now).Round(time.Second).String()
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
			&cli.StringFlag{Name: "site", Usage: "only those that `SITE` has seen, with their health there"},
			&cli.BoolFlag{Name: "banned", Usage: "also those that are banned from all sites"},
			&cli.StringFlag{Name: "sort", Usage: "by `ORDER`: latency, score, ok, requests, checked, country or protocol", Value: "latency"},
			&cli.IntFlag{Name: "limit", Usage: "at most `N`"},
			progressFlag(), jsonFlag(),
		},
		Action: func(c *cli.Context) error { return listProxies(env, c) },
	}
}

// filterOf reads the flags of a list.
func filterOf(c *cli.Context) (proxies.Filter, error) {
	filter := proxies.Filter{Anonymity: c.String("anonymity"), HTTPS: c.Bool("https"), MaxLatency: c.Duration("max-latency"), Banned: c.Bool("banned")}
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
		members, err := pool.List(ctx, filter)
		if err != nil {
			return err
		}
		list := make([]listed, 0, len(members)) // [], not null
		there := map[string]proxies.Health{}
		if site := c.String("site"); site != "" {
			if there, err = pool.SiteHealth(ctx, site); err != nil {
				return err
			}
		}
		for _, m := range members {
			l := listed{Member: m}
			if h, ok := there[m.ID]; ok {
				l.Site = &h
			} else if c.String("site") != "" {
				continue
			}
			list = append(list, l)
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
		for _, l := range list {
			exit := "-"
			if l.Exit.IsValid() {
				exit = l.Exit.String()
			}
			t.row(l.String(), cmp.Or(l.Anonymity, "-"), exit, cmp.Or(l.Country, "-"), httpsWord(l.Can), fmt.Sprintf("%.0f ms", l.LatencyMS),
				fmt.Sprintf("%.0f%%", 100*l.health().OK), fmt.Sprint(l.health().Requests), fmt.Sprintf("%.2f", l.Score), l.state(now), since(l.CheckedAt))
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
		t.row("banned", fmt.Sprint(s.Banned))
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
		Description: `A PROXY is named as in the list, as host:port, or as a host alone for all of
its ports. One that still stands in a source comes back with the next refresh
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
				return fmt.Errorf("no proxy %s in the pool; see muster proxies list --anonymity transparent --banned", name)
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
