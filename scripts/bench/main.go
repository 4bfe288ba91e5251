// Command bench measures what Muster promises, side by side with its yardsticks, on a Redis of
// its own.
//
//	go run ./scripts/bench [-json] [-only PREFIX] [-rounds N]
//
// All rows are in rows.go; their measure functions are in a file for each area. A row measures ours
// and its yardstick in turns, on the same machine in the same minute, and compares the medians with
// its bar. Exit status 0: every row is within its bar; 1: some row is not; 2: wrong usage.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"text/tabwriter"
)

// errMissed is returned when a row is outside its bar or could not be measured.
var errMissed = errors.New("some rows are outside their bar")

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()

	if arg := os.Getenv(childEnv); arg != "" {
		if err := runChild(ctx, arg); err != nil {
			fmt.Fprintln(os.Stderr, "bench: worker:", err)
			os.Exit(1)
		}
		return
	}
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	switch {
	case err == nil:
	case errors.Is(err, flag.ErrHelp):
		os.Exit(0)
	case errors.Is(err, errUsage):
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(2)
	default:
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// errNoPeer is returned by a yardstick that is not installed on this machine.
var errNoPeer = errors.New("its peer is not installed")

// errUsage is an error in the command line.
var errUsage = errors.New("wrong usage")

func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	flags.SetOutput(stderr)
	asJSON := flags.Bool("json", false, "print one JSON array instead of a table")
	only := flags.String("only", "", "measure only rows whose name begins with `PREFIX`")
	rounds := flags.Int("rounds", 0, "rounds per row; 0 uses the number of each row, 5 by default")
	if err := flags.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return err
		}
		return fmt.Errorf("%w: %w", errUsage, err)
	}
	if flags.NArg() > 0 || *rounds < 0 {
		return fmt.Errorf("%w: bench takes no arguments and no negative number of rounds; see -help", errUsage)
	}

	chosen := pick(rows(), *only)
	if len(chosen) == 0 {
		return fmt.Errorf("%w: no row's name begins with %q; run without -only to see them all", errUsage, *only)
	}

	l, err := openLab(ctx)
	if err != nil {
		return err
	}
	defer l.close()

	results := make([]result, 0, len(chosen))
	for _, r := range chosen {
		fmt.Fprintf(stderr, "%s …\n", r.name)
		res, err := measure(ctx, l, r, *rounds)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if errors.Is(err, errNoPeer) {
			fmt.Fprintf(stderr, "bench: %s is skipped: %v\n", r.name, err)
			continue
		}
		if err != nil {
			// One broken row must not hide the others: it is reported as missed.
			fmt.Fprintf(stderr, "bench: measure %s: %v\n", r.name, err)
			res = result{Name: r.name, Unit: r.unit, Bar: r.bar.String(), Error: err.Error()}
		}
		results = append(results, res)
	}

	if err := report(stdout, results, *asJSON); err != nil {
		return err
	}
	for _, res := range results {
		if !res.OK {
			return errMissed
		}
	}
	return nil
}

func pick(all []row, prefix string) []row {
	var chosen []row
	for _, r := range all {
		if strings.HasPrefix(r.name, prefix) {
			chosen = append(chosen, r)
		}
	}
	return chosen
}

// result is one line of the report. Yardstick and Ratio are null for a row that has no yardstick.
type result struct {
	Name      string   `json:"name"`
	Value     float64  `json:"value"`
	Unit      string   `json:"unit"`
	Yardstick *float64 `json:"yardstick"`
	Ratio     *float64 `json:"ratio"`
	Bar       string   `json:"bar"`
	OK        bool     `json:"ok"`
	Error     string   `json:"error,omitempty"`
}

func report(w io.Writer, results []result, asJSON bool) error {
	if asJSON {
		enc := json.NewEncoder(w)
		enc.SetIndent("", "  ")
		return enc.Encode(results)
	}

	tw := tabwriter.NewWriter(w, 0, 4, 2, ' ', 0)
	fmt.Fprintln(tw, "row\tvalue\tunit\tyardstick\tratio\tbar\t")
	for _, r := range results {
		verdict := "ok"
		switch {
		case r.Error != "":
			verdict = "FAILED " + r.Error
		case !r.OK:
			verdict = "MISSED"
		}
		fmt.Fprintf(tw, "%s\t%.4g\t%s\t%s\t%s\t%s\t%s\n", r.Name, r.Value, r.Unit, orDash(r.Yardstick), orDash(r.Ratio), r.Bar, verdict)
	}
	return tw.Flush()
}

func orDash(v *float64) string {
	if v == nil {
		return "-"
	}
	return fmt.Sprintf("%.4g", *v)
}
