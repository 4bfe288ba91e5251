package main

import (
	"context"
	"fmt"

	"github.com/urfave/cli/v2"

	"muster/orchestrator/api/client"
)

// compare compares the items of a job with the items of an older job.
func (s jobScope) compare(ctx context.Context, c *cli.Context, j client.Job) error {
	old, err := s.find(ctx, c.String("compare"))
	if err != nil {
		return err
	}
	compared, err := client.CompareJobs.Call(ctx, s.api, client.JobComparison{JobPath: client.JobPath{ID: old.ID}, Other: j.ID, Same: c.Bool("all")})
	if err != nil {
		return err
	}
	if c.Bool("json") {
		return printJSON(s.env.stdout, compared)
	}
	return printComparison(s.env, compared)
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
