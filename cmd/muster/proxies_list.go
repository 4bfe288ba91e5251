package main

import (
	"fmt"
	"time"

	"github.com/urfave/cli/v2"

	"muster/orchestrator/api/client"
	"muster/proxies"
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
	return apiCommand(env, &cli.Command{
		Name:  "list",
		Usage: "list the pool, fastest first, or print statistics of the pool or of its sources",
		Description: `With --sources, UNIQUE counts the candidates that no other source has. A source
without a usable proxy for three refreshes is DRY: it costs probes and finds nothing.`,
		Flags: []cli.Flag{
			&cli.IntFlag{Name: "limit", Usage: "at most `N`"},
			&cli.BoolFlag{Name: "stats", Usage: "print statistics of the pool instead"},
			&cli.BoolFlag{Name: "sources", Usage: "list the sources and their yield instead"}, jsonFlag(),
		},
	}, func(s scope, f client.ProxyFilter) error {
		switch {
		case s.Bool("stats"):
			return showPool(s, client.None{})
		case s.Bool("sources"):
			return listSources(s)
		}
		now := time.Now()
		return printAll(s, client.ListProxies, f, "No proxies found", proxyColumns, func(m proxies.Member) []any { return proxyRow(m, now) })
	})
}

const proxyColumns = "PROXY ANONYMITY COUNTRY HTTPS LATENCY OK STATE CHECKED REQUESTS SCORE EXIT"

func isComma(r rune) bool { return r == ',' || r == ' ' }

func proxyRow(m proxies.Member, now time.Time) []any {
	exit := ""
	if m.Exit.IsValid() {
		exit = m.Exit.String()
	}
	health := m.ShownHealth()
	return []any{m.String(), m.Anonymity, m.Country, httpsWord(m.Can), fmt.Sprintf("%.0f ms", m.LatencyMS), fmt.Sprintf("%.0f%%", 100*health.OK),
		stateOf(m, now), m.CheckedAt, health.Requests, fmt.Sprintf("%.2f", m.Score), exit}
}
