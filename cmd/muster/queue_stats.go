package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/urfave/cli/v2"
	"golang.org/x/term"

	"muster/tasks/workqueue"
)

func queueStats(env environment, c *cli.Context) error {
	if err := arguments(c, 0, 0); err != nil {
		return err
	}
	format := c.String("format")
	if format != "table" && format != "json" {
		return usageError{fmt.Errorf("no format %q; use table or json", format)}
	}
	asJSON := format == "json" || c.Bool("json")
	return withQueue(env, c, nil, func(ctx context.Context, q queueScope) error {
		if c.Bool("repair") {
			n, err := q.Repair(ctx)
			if err != nil {
				return err
			}
			fmt.Fprintf(q.display, "%d items had wrong indexes\n", n)
		}
		for shown := 0; ; shown++ {
			s, err := q.Stats(ctx)
			if err != nil {
				return err
			}
			if c.Bool("verify") {
				if _, err := q.Verify(ctx); err != nil {
					return err
				}
			}
			if shown > 0 && !asJSON {
				overwrite(env.stdout, statsLines)
			}
			if err := printStats(env, q, s, asJSON, c.Bool("watch")); err != nil || !c.Bool("watch") {
				return err
			}
			select {
			case <-ctx.Done():
				return context.Cause(ctx)
			case <-time.After(time.Second):
			}
		}
	})
}

// statsLines is the number of lines of the table of printStats.
const statsLines = 9

// overwrite lets the next lines replace the last n on a terminal; elsewhere it
// prints an empty line.
func overwrite(w io.Writer, n int) {
	if f, ok := w.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		fmt.Fprintf(w, "\x1b[%dA\x1b[J", n)
		return
	}
	fmt.Fprintln(w)
}

func printStats(env environment, q queueScope, s workqueue.Stats, asJSON, watch bool) error {
	if asJSON && watch {
		return json.NewEncoder(env.stdout).Encode(s) // a line each
	}
	if asJSON {
		return printJSON(env.stdout, s)
	}
	state := ""
	if s.Paused {
		state = " (paused)"
	}
	fmt.Fprintf(env.stdout, "Queue Statistics: %s%s\n", q.Name(), state)
	t := newTable(env.stdout, "STATE", "ITEMS")
	for _, r := range []struct {
		state string
		n     int64
	}{
		{"queued", s.Queued}, {"  of these delayed", s.Delayed}, {"in_progress", s.InProgress},
		{"done", s.Done}, {"skipped", s.Skipped}, {"error", s.Error}, {"total", s.Total},
	} {
		t.row(r.state, fmt.Sprint(r.n))
	}
	return t.flush()
}
