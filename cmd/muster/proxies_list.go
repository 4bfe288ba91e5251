package main

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"muster/orchestrator/api/client"
	"muster/proxies"
	"muster/proxies/probe"
)

// stateOf is the state of a proxy, and when it can be used again.
func stateOf(m proxies.Member, now time.Time) string {
	until := m.Health.Until
	if there := m.ShownHealth().Until; there.After(until) {
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
		Usage: "list the pool, fastest first, or print statistics of the pool or of its sources",
		Description: `With --sources, UNIQUE counts the candidates that no other source has. A source
without a usable proxy for three refreshes is DRY: it costs probes and finds nothing.`,
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
			&cli.BoolFlag{Name: "stats", Usage: "print statistics of the pool instead"},
			&cli.BoolFlag{Name: "sources", Usage: "list the sources and their yield instead"},
			serverFlag(), jsonFlag(),
		},
		Action: onAPI(env, 0, 0, func(ctx context.Context, c *cli.Context, api *client.Client) error {
			switch {
			case c.Bool("stats"):
				return showPool(ctx, env, c, api)
			case c.Bool("sources"):
				return listSources(ctx, env, c, api)
			}
			list, err := client.All(ctx, api, client.ListProxies, client.ProxyFilter{
				Protocol: strings.FieldsFunc(c.String("protocol"), isComma), Country: strings.FieldsFunc(c.String("country"), isComma),
				Anonymity: c.String("anonymity"), HTTPS: c.Bool("https"), MaxLatency: maxLatency(c),
				Site: c.String("site"), Banned: c.Bool("banned"), Sort: c.String("sort"),
			}, c.Int("limit"))
			if err != nil {
				return err
			}
			now := time.Now()
			return showPage(env, c, list, "No proxies found",
				[]string{"PROXY", "ANONYMITY", "EXIT", "COUNTRY", "HTTPS", "LATENCY", "OK", "REQUESTS", "SCORE", "STATE", "CHECKED"},
				func(m proxies.Member) []string { return proxyRow(m, now) }, "EXIT", "REQUESTS", "SCORE")
		}),
	}
}

func isComma(r rune) bool { return r == ',' || r == ' ' }

func proxyRow(m proxies.Member, now time.Time) []string {
	exit := "-"
	if m.Exit.IsValid() {
		exit = m.Exit.String()
	}
	health := m.ShownHealth()
	return []string{m.String(), cmp.Or(m.Anonymity, "-"), exit, cmp.Or(m.Country, "-"), httpsWord(m.Can), fmt.Sprintf("%.0f ms", m.LatencyMS),
		fmt.Sprintf("%.0f%%", 100*health.OK), fmt.Sprint(health.Requests), fmt.Sprintf("%.2f", m.Score), stateOf(m, now), age(m.CheckedAt)}
}

// maxLatency returns the value of --max-latency, or "".
func maxLatency(c *cli.Context) string {
	if d := c.Duration("max-latency"); d > 0 {
		return d.String()
	}
	return ""
}
