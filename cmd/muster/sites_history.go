package main

import (
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
	return apiCommand(env, &cli.Command{
		Name:        "history",
		Usage:       "show when a record was first and last seen, its last ten changes, and whether it is gone",
		ArgsUsage:   "SITE KEY",
		Description: `KEY is the _key or the _url of a record in the files of a scrape.`,
		Flags:       []cli.Flag{jsonFlag()},
	}, func(s scope, in client.HistoryFilter) error {
		page, err := client.GetHistory.Call(s.ctx, s.api, in)
		if err != nil {
			return err
		}
		if s.Bool("json") {
			return printJSON(env.stdout, page)
		}
		t := newTable(env.stdout, "TYPE KEY AT EVENT FIELD BEFORE AFTER")
		for _, h := range page.Data {
			historyRows(h, t.row)
		}
		return t.flush()
	})
}

// historyRows calls row with the events of a record, oldest first.
func historyRows(h sites.History, row func(...any)) {
	event := func(at, name string, more ...any) {
		row(append(append([]any{h.Type, clip.Line(h.Key, 40), at, name}, more...), make([]any, 3-len(more))...)...)
	}
	event(h.First.Local().Format(time.DateTime), "first seen")
	for _, c := range h.Changes {
		for _, field := range slices.Sorted(maps.Keys(c.Fields)) {
			more := []any{field}
			for _, value := range c.Fields[field] {
				more = append(more, clip.Line(string(value), 60))
			}
			event(c.At.Local().Format(time.DateTime), "changed", more[:min(len(more), 3)]...)
		}
	}
	event(h.Last.Local().Format(time.DateTime), "last seen")
	if h.Gone {
		event("", fmt.Sprintf("gone from %d scrapes", h.Missed))
	}
}
