package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/urfave/cli/v2"

	"muster/internal/clip"
	"muster/orchestrator/api/client"
	"muster/sites"
)

func historyCommand(env environment) *cli.Command {
	return &cli.Command{
		Name:        "history",
		Usage:       "show when a record was first and last seen, its last ten changes, and whether it is gone",
		ArgsUsage:   "SITE KEY",
		Description: `KEY is the _key or the _url of a record in the files of a scrape.`,
		Flags:       []cli.Flag{serverFlag(), jsonFlag()},
		Action: onAPI(env, 2, 2, func(ctx context.Context, c *cli.Context, api *client.Client) error {
			page, err := client.GetHistory.Call(ctx, api, client.HistoryFilter{Site: c.Args().First(), Key: c.Args().Get(1)})
			if err != nil {
				return err
			}
			if c.Bool("json") {
				return printJSON(env.stdout, page)
			}
			t := newTable(env.stdout, "TYPE", "KEY", "AT", "EVENT", "FIELD", "BEFORE", "AFTER")
			for _, h := range page.Data {
				historyRows(h, t.row)
			}
			return t.flush()
		}),
	}
}

// historyRows calls row with the events of a record, oldest first.
func historyRows(h sites.History, row func(...string)) {
	event := func(at time.Time, name string, more ...string) {
		row(append(append([]string{h.Type, clip.Line(h.Key, 40), at.Local().Format(time.DateTime), name}, more...), make([]string, 3-len(more))...)...)
	}
	event(h.First, "first seen")
	for _, c := range h.Changes {
		for _, field := range slices.Sorted(maps.Keys(c.Fields)) {
			more := []string{field}
			for _, value := range c.Fields[field] {
				more = append(more, clip.Line(string(value), 60))
			}
			event(c.At, "changed", more[:min(len(more), 3)]...)
		}
	}
	event(h.Last, "last seen")
	if h.Gone {
		row(h.Type, clip.Line(h.Key, 40), "", fmt.Sprintf("gone from %d scrapes", h.Missed), "", "", "")
	}
}
