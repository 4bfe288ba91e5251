package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"

	"github.com/urfave/cli/v2"

	"muster/jobs"
)

func jobsCompareCommand(env environment) *cli.Command {
	return &cli.Command{
		Name: "compare", Usage: "compare the items of two jobs", ArgsUsage: "OLD NEW",
		Description: `Items are the same when they have the same key.

    muster jobs start --version-of OLD --prompt … --wait
    muster jobs compare OLD NEW`,
		Flags: []cli.Flag{
			&cli.BoolFlag{Name: "all", Usage: "list the items that are the same too"},
			progressFlag(), jsonFlag(),
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
			list := newDifferences(env.stdout, c.Bool("json"), ids)
			err := s.jobs.Compare(ctx, ids[0], ids[1], func(d jobs.Difference) error {
				list.counts[d.Change]++
				if d.Change == "same" && !c.Bool("all") {
					return nil
				}
				return list.add(d)
			})
			if err != nil {
				return err
			}
			return list.end()
		}),
	}
}

// comparison is the JSON result of jobs compare; its differences are written one by one.
type comparison struct {
	A           string            `json:"a"`
	B           string            `json:"b"`
	Differences []jobs.Difference `json:"differences"`
	Counts      map[string]int64  `json:"counts"` // by new, gone, changed and same
}

// differences prints the differences between two jobs as they are found, however
// many there are.
type differences struct {
	w      io.Writer
	asJSON bool
	ids    [2]string
	n      int
	counts map[string]int64
}

func newDifferences(w io.Writer, asJSON bool, ids [2]string) *differences {
	return &differences{w: w, asJSON: asJSON, ids: ids, counts: map[string]int64{}}
}

func (l *differences) add(d jobs.Difference) error {
	l.n++
	if !l.asJSON {
		if l.n == 1 {
			fmt.Fprintf(l.w, "%-8s %-20s %s\n", "CHANGE", "ITEM", "TEXT")
		}
		it := d.B
		if it == nil {
			it = d.A
		}
		text := ""
		if it != nil {
			text = whatOf(*it)
		}
		_, err := fmt.Fprintf(l.w, "%-8s %-20s %s\n", d.Change, cell(d.Key, 20), cell(text, 49))
		return err
	}
	raw, err := json.Marshal(d)
	if err != nil {
		return err
	}
	before := ",\n    "
	if l.n == 1 {
		before = fmt.Sprintf("{\n  \"a\": %q,\n  \"b\": %q,\n  \"differences\": [\n    ", l.ids[0], l.ids[1])
	}
	_, err = fmt.Fprint(l.w, before+string(raw))
	return err
}

func (l *differences) end() error {
	if !l.asJSON {
		if l.n > 0 {
			fmt.Fprintln(l.w)
		}
		_, err := fmt.Fprintf(l.w, "%d new, %d gone, %d changed, %d same\n", l.counts["new"], l.counts["gone"], l.counts["changed"], l.counts["same"])
		return err
	}
	counts, err := json.Marshal(map[string]int64{"new": l.counts["new"], "gone": l.counts["gone"], "changed": l.counts["changed"], "same": l.counts["same"]})
	if err != nil {
		return err
	}
	before := "\n  ],"
	if l.n == 0 {
		before = fmt.Sprintf("{\n  \"a\": %q,\n  \"b\": %q,\n  \"differences\": [],", l.ids[0], l.ids[1])
	}
	_, err = fmt.Fprintf(l.w, "%s\n  \"counts\": %s\n}\n", before, counts)
	return err
}
