package main

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"muster/orchestrator/api/client"
	"muster/proxies"
)

// countCommand is proxies list --stats by another name.
func countCommand(env environment) *cli.Command {
	return apiCommand(env, &cli.Command{Name: "count", Hidden: true, Usage: "print statistics of the pool", Flags: []cli.Flag{jsonFlag()}}, showPool)
}

// showPool prints statistics of the pool.
func showPool(s scope, _ client.None) error {
	stats, err := client.GetProxyStats.Call(s.ctx, s.api, client.None{})
	switch {
	case err != nil:
		return err
	case s.Bool("json"):
		return printJSON(s.env.stdout, stats)
	}
	return printPool(s.env, stats)
}

func printPool(env environment, s proxies.Stats) error {
	t := newTable(env.stdout, "POOL _")
	t.row("live", s.Live)
	t.row("usable", fmt.Sprintf("%d (%d ready, %d rest)", s.Usable, s.Ready, s.Cooling))
	t.row("banned from all sites", s.Banned)
	t.row("banned from a site", counts(s.SiteBans))
	t.row("protocols", counts(s.Protocols))
	t.row("anonymity", counts(s.Anonymity))
	t.row("countries", counts(s.Countries))
	t.row("https", s.HTTPS)
	t.row("rotating exits", s.Rotating)
	t.row("latency", fmt.Sprintf("median %.0f ms, 90%% %.0f ms, 99%% %.0f ms", s.Latency.P50, s.Latency.P90, s.Latency.P99))
	t.row("requests", s.Requests)
	refreshed := age(s.RefreshedAt)
	if s.Stale {
		refreshed += ", STALE: the last refresh found nothing"
	}
	t.row("refreshed", refreshed)
	return t.flush()
}

// counts lists numbers by name, the largest first, and the small ones as one.
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

// listSources prints the sources and their yield.
func listSources(s scope) error {
	list, err := client.All(s.ctx, s.api, client.ListProxySources, client.None{}, 0)
	if err != nil {
		return err
	}
	return showPage(s, list, "No sources; name some in proxies.sources", "SOURCE STATE CANDIDATES ALIVE USABLE READ LEFT_OUT UNIQUE ELITE", func(y client.ProxySource) []any {
		return []any{y.Name, y.State(), y.Last.Candidates, y.Last.Alive, y.Last.Usable, y.LastAt, counts(y.Rejects), y.Last.Unique, y.Last.Elite, note(y.Error)}
	})
}
