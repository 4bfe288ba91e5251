package main

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"muster/proxies"
)

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
		refreshed := age(s.RefreshedAt)
		if s.Stale {
			refreshed += ", STALE: the last refresh found nothing"
		}
		t.row("refreshed", refreshed)
		return t.flush()
	})
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
