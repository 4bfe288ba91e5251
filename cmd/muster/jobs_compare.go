package main

import (
	"context"
	"fmt"

	"github.com/urfave/cli/v2"

	"muster/orchestrator/api/client"
)

func jobsCompareCommand(env environment) *cli.Command {
	return &cli.Command{
		Name: "compare", Usage: "compare the items of two jobs", ArgsUsage: "OLD NEW",
		Description: `Items are the same when they have the same key.

    muster jobs start --version-of OLD --prompt … --wait
    muster jobs compare OLD NEW`,
		Flags: []cli.Flag{
			&cli.BoolFlag{Name: "all", Usage: "list the items that are the same too"},
			serverFlag(), jsonFlag(),
		},
		Action: onJobs(env, 2, 2, func(ctx context.Context, c *cli.Context, s jobScope) error {
			var ids [2]string
			for i := range ids {
				j, err := s.find(ctx, c.Args().Get(i))
				if err == nil {
					err = hasItems(j)
				}
				if err != nil {
					return err
				}
				ids[i] = j.ID
			}
			compared, err := s.api.CompareJobs(ctx, ids[0], ids[1], c.Bool("all"))
			if err != nil {
				return err
			}
			if c.Bool("json") {
				return printJSON(env.stdout, compared)
			}
			return printComparison(env, compared)
		}),
	}
}

func printComparison(env environment, compared client.Comparison) error {
	if len(compared.Differences) > 0 {
		t := newTable(env.stdout, "CHANGE", "ITEM", "TEXT")
		for _, d := range compared.Differences {
			it := d.B
			if it == nil {
				it = d.A
			}
			text := ""
			if it != nil {
				text = whatOf(*it)
			}
			t.row(d.Change, d.Key, text)
		}
		if err := t.flush(); err != nil {
			return err
		}
		fmt.Fprintln(env.stdout)
	}
	n := compared.Counts
	_, err := fmt.Fprintf(env.stdout, "%d new, %d gone, %d changed, %d same\n", n["new"], n["gone"], n["changed"], n["same"])
	return err
}
