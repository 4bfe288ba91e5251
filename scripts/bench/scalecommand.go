package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
)

// scaleCommand is the flags of the scale run.
type scaleCommand struct {
	on     bool
	items  int
	memory float64
	only   string
	read   string
	write  string
}

func scaleFlags(flags *flag.FlagSet) *scaleCommand {
	c := &scaleCommand{}
	flags.BoolVar(&c.on, "scale", false, "measure how processor time and memory grow, instead of the rows; takes some minutes")
	flags.IntVar(&c.items, "scale-items", 1_000_000, "largest `number` of items in a queue")
	flags.Float64Var(&c.memory, "scale-memory", 4, "`GiB` that Redis may use; sizes that need more are left out")
	flags.StringVar(&c.only, "scale-only", "", "measure only these `WORKS`, separated by commas, or sizes")
	flags.StringVar(&c.read, "scale-read", "", "measure nothing, and read the JSON of a run from `FILE`")
	flags.StringVar(&c.write, "scale-write", "", "write the tables into the page `FILE`, too")
	return c
}

// run measures, or reads an earlier run, and reports.
func (c *scaleCommand) run(ctx context.Context, asJSON bool, stdout, stderr io.Writer) error {
	if c.only != "" && c.write != "" {
		return fmt.Errorf("%w: -scale-only with -scale-write: the page would lose the rows that are not measured", errUsage)
	}
	rep, err := c.report(ctx, stderr)
	if err != nil {
		return fmt.Errorf("scale: %w", err)
	}
	if asJSON {
		enc := json.NewEncoder(stdout)
		enc.SetIndent("", "  ")
		err = enc.Encode(rep)
	} else {
		_, err = fmt.Fprint(stdout, rep.markdown())
	}
	if err == nil && c.write != "" {
		err = rep.writePage(c.write)
	}
	return err
}

func (c *scaleCommand) report(ctx context.Context, stderr io.Writer) (*scaleReport, error) {
	if c.read != "" {
		raw, err := os.ReadFile(c.read)
		if err != nil {
			return nil, err
		}
		rep := &scaleReport{}
		return rep, json.Unmarshal(raw, rep)
	}
	p := defaultPlan(c.items, c.memory*(1<<30))
	if c.only != "" {
		if err := p.keepOnly(strings.Split(c.only, ",")); err != nil {
			return nil, err
		}
	}
	return runScale(ctx, p, stderr)
}

// sizesOnly is the name of the sizes among the works.
const sizesOnly = "sizes"

// keepOnly removes all but the works.
func (p *plan) keepOnly(works []string) error {
	for _, w := range works {
		if p.cells[w] == 0 && w != sizesOnly {
			return fmt.Errorf("%w: there is no work %q", errUsage, w)
		}
	}
	for w := range p.cells {
		if !slices.Contains(works, w) {
			delete(p.cells, w)
		}
	}
	if len(p.cells) == 0 {
		p.nodes = nil
	}
	if !slices.Contains(works, sizesOnly) {
		p.groups, p.items = nil, nil
	}
	return nil
}
