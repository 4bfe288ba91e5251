package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"muster/orchestrator/monitor"
	"muster/proxies"
	"muster/proxies/probe"
)

// showResults prints results as run reports them, above a progress bar, and a summary when run returns.
func showResults(env environment, c *cli.Context, display *monitor.Display, total int, run func(report func(probe.Result)) error) error {
	track := display.Track("check")
	var out io.Writer = env.stdout
	if env.terminal() && isTerminal(env.stdout) { // print above the bar
		out = display
	}
	var tally proxies.Tally
	enc := json.NewEncoder(out)
	began := time.Now()
	if !c.Bool("json") {
		fmt.Fprintf(out, resultFormat, "RESULT", "TYPE", "PROXY", "ANONYMITY", "HTTPS", "EXIT", "CC", "STATUS", "LATENCY", "REASON")
	}
	err := run(func(r probe.Result) {
		tally.Add(r)
		track.Update(monitor.Progress{Done: int64(tally.Checked), Total: int64(total), Unit: "proxies", Note: pace(tally, total, time.Since(began))})
		switch {
		case c.Bool("alive") && !r.Accepted():
		case c.Bool("json"):
			_ = enc.Encode(r) // a reader that went away ends the command by its signal
		default:
			printResult(out, r)
		}
	})
	summary := fmt.Sprintf("%d of %d checked: %d alive, %d usable, %d elite", tally.Checked, total, tally.Alive, tally.Usable, tally.Elite)
	if c.String("target") != "" {
		summary = fmt.Sprintf("%d of %d checked: %d bring the target, %d do not", tally.Checked, total, tally.Accepted, tally.Checked-tally.Accepted)
	}
	if err != nil {
		track.Fail(summary)
	} else {
		track.Done(summary)
	}
	display.Close()
	if !c.Bool("json") {
		printReasons(env, tally.Reasons)
	}
	return err
}

// pace is the progress of a check in a few words.
func pace(t proxies.Tally, total int, took time.Duration) string {
	note := fmt.Sprintf("%d alive, %d dead", t.Alive, t.Checked-t.Alive)
	if seconds := took.Seconds(); seconds >= 1 {
		rate := float64(t.Checked) / seconds
		note += fmt.Sprintf(", %.0f/s, %s left", rate, time.Duration(float64(total-t.Checked)/rate*float64(time.Second)).Round(time.Second))
	}
	return note
}

// resultFormat has the columns of lines with results, of fixed width: results are printed as they are found.
const resultFormat = "%-6s  %-7s  %-34s  %-15s  %-5s  %-15s  %-2s  %-6s  %8s  %s\n"

// printResult prints a result as a line.
func printResult(w io.Writer, r probe.Result) {
	state, https, exit, status, took := "dead", "-", "-", "-", "-"
	if r.Alive {
		state, https, took = "alive", httpsWord(r.Can), fmt.Sprintf("%.0f ms", r.Latency.Total)
	}
	if r.Alive && r.Reason != "" {
		state = "no"
	}
	grade := cmp.Or(r.Anonymity, "-")
	if r.Tunnel {
		grade += " (tunnel)"
	}
	if r.Exit.IsValid() {
		exit = r.Exit.String()
	}
	if r.Status > 0 {
		status = fmt.Sprint(r.Status)
	}
	why := "-"
	if r.Reason != "" {
		why = strings.TrimSuffix(string(r.Reason)+": "+cell(r.Detail, 100), ": ")
	}
	if len(r.Tampering) > 0 {
		why += "  tampers: " + strings.Join(r.Tampering, ", ")
	}
	fmt.Fprintf(w, resultFormat, state, cmp.Or(r.Protocol, "-"), r.Candidate, grade, https, exit, cmp.Or(r.Candidate.Country, "-"), status, took, why)
}

// httpsWord is whether a proxy can tunnel https: yes, no, or "?" if that could not be checked.
func httpsWord(can probe.Capabilities) string {
	switch {
	case can.HTTPS:
		return "yes"
	case can.HTTPSUnknown:
		return "?"
	}
	return "no"
}

// printReasons prints why proxies were rejected, the most frequent reason first.
func printReasons(env environment, reasons map[probe.Reason]int) {
	if len(reasons) == 0 {
		return
	}
	order := slices.SortedFunc(maps.Keys(reasons), func(a, b probe.Reason) int {
		return cmp.Or(reasons[b]-reasons[a], strings.Compare(string(a), string(b)))
	})
	var words []string
	for _, r := range order {
		words = append(words, fmt.Sprintf("%s %d", r, reasons[r]))
	}
	fmt.Fprintln(env.stderr, "rejected:", strings.Join(words, ", "))
}
