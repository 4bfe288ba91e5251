package main

import (
	"cmp"
	"context"
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
	return &cli.Command{
		Name: "count", Hidden: true, Usage: "print statistics of the pool", Flags: []cli.Flag{serverFlag(), jsonFlag()},
		Action: onAPI(env, 0, 0, func(ctx context.Context, c *cli.Context, api *client.Client) error { return showPool(ctx, env, c, api) }),
	}
}

// showPool prints statistics of the pool.
func showPool(ctx context.Context, env environment, c *cli.Context, api *client.Client) error {
	s, err := client.GetProxyStats.Call(ctx, api, client.None{})
	switch {
	case err != nil:
		return err
	case c.Bool("json"):
		return printJSON(env.stdout, s)
	}
	return printPool(env, s)
}

func printPool(env environment, s proxies.Stats) error {
	t := newTable(env.stdout, "POOL", "")
	t.row("live", fmt.Sprint(s.Live))
	t.row("usable", fmt.Sprintf("%d (%d ready, %d rest)", s.Usable, s.Ready, s.Cooling))
	t.row("banned from all sites", fmt.Sprint(s.Banned))
	t.row("banned from a site", counts(s.SiteBans))
	t.row("protocols", counts(s.Protocols))
	t.row("anonymity", counts(s.Anonymity))
	t.row("countries", counts(s.Countries))
	t.row("https", fmt.Sprint(s.HTTPS))
	t.row("rotating exits", fmt.Sprint(s.Rotating))
	t.row("latency", fmt.Sprintf("median %.0f ms, 90%% %.0f ms, 99%% %.0f ms", s.Latency.P50, s.Latency.P90, s.Latency.P99))
	t.row("requests", fmt.Sprint(s.Requests))
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
func listSources(ctx context.Context, env environment, c *cli.Context, api *client.Client) error {
	list, err := client.All(ctx, api, client.ListProxySources, client.None{}, 0)
	if err != nil {
		return err
	}
	err = showPage(env, c, list, "No sources; name some in proxies.sources",
		[]string{"SOURCE", "STATE", "CANDIDATES", "UNIQUE", "ALIVE", "USABLE", "ELITE", "READ", "LEFT OUT"}, sourceRow,
		"UNIQUE", "ELITE", "LEFT OUT")
	for _, y := range list {
		if y.Error != "" && !c.Bool("json") {
			fmt.Fprintln(env.stdout, strings.ReplaceAll(y.Error, "\n", " "))
		}
	}
	return err
}

func sourceRow(y client.ProxySource) []string {
	return []string{y.Name, y.State(), fmt.Sprint(y.Last.Candidates), fmt.Sprint(y.Last.Unique), fmt.Sprint(y.Last.Alive), fmt.Sprint(y.Last.Usable), fmt.Sprint(y.Last.Elite),
		age(y.LastAt), counts(y.Rejects)}
}
