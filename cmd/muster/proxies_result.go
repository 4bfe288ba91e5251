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

// results is the output format of a kind of check.
type results struct {
	name    string // of the progress bar
	header  string // of the lines
	line    func(probe.Result) string
	summary func(proxies.Tally) string
}

// judgedResults shows checks by a judge.
func judgedResults(name string) results {
	return results{name, fmt.Sprintf(resultFormat, "RESULT", "TYPE", "PROXY", "ANONYMITY", "HTTPS", "EXIT", "CC", "LATENCY") + "  REASON", resultLine, func(t proxies.Tally) string {
		return fmt.Sprintf("%d alive, %d usable, %d elite", t.Alive, t.Usable, t.Elite)
	}}
}

// targetResults shows checks against a target.
var targetResults = results{"check", fmt.Sprintf(targetFormat, "RESULT", "TYPE", "PROXY", "STATUS", "LATENCY") + "  REASON", targetLine, func(t proxies.Tally) string {
	return fmt.Sprintf("%d bring the target, %d do not", t.Accepted, t.Checked-t.Accepted)
}}

// showResults prints results as run reports them, above a progress bar, and a summary when run returns.
func showResults(env environment, c *cli.Context, display *monitor.Display, shown results, total int, run func(report func(probe.Result)) error) error {
	track := display.Track(shown.name)
	var out io.Writer = env.stdout
	if env.terminal() && isTerminal(env.stdout) { // print above the bar
		out = display
	}
	var tally proxies.Tally
	enc := json.NewEncoder(out)
	began := time.Now()
	if !c.Bool("json") {
		fmt.Fprintln(out, shown.header)
	}
	err := run(func(r probe.Result) {
		tally.Add(r)
		track.Update(monitor.Progress{Done: int64(tally.Checked), Total: int64(total), Unit: "proxies", Note: pace(tally, total, time.Since(began))})
		switch {
		case c.Bool("alive") && !r.Accepted():
		case c.Bool("json"):
			_ = enc.Encode(r) // a reader that went away ends the command by its signal
		default:
			fmt.Fprintln(out, shown.line(r))
		}
	})
	summary := fmt.Sprintf("%d of %d checked: %s", tally.Checked, total, shown.summary(tally))
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

// The columns of lines with results, of fixed width: results are printed as they are found.
const (
	resultFormat = "%-6s  %-7s  %-34s  %-15s  %-9s  %-15s  %-2s  %8s"
	targetFormat = "%-6s  %-7s  %-34s  %-6s  %8s"
)

// withReason adds why a proxy was rejected to the line of its result.
func withReason(line string, r probe.Result) string {
	if r.Reason != "" {
		line += "  " + strings.TrimSuffix(string(r.Reason)+": "+cell(r.Detail, 100), ": ")
	}
	return line
}

// resultLine is a result as a line.
func resultLine(r probe.Result) string {
	state, grade, https, exit, took := "dead", "-", "-", "-", "-"
	if r.Alive {
		state, grade, https, took = "alive", cmp.Or(r.Anonymity, "-"), "https "+httpsWord(r.Can), fmt.Sprintf("%.0f ms", r.Latency.Connect+r.Latency.Handshake+r.Latency.FirstByte)
		if r.Reason != "" {
			state = "no"
		}
		if r.Tunnel {
			grade += " (tunnel)"
		}
	}
	if r.Exit.IsValid() {
		exit = r.Exit.String()
	}
	line := fmt.Sprintf(resultFormat, state, cmp.Or(r.Protocol, "-"), r.Candidate, grade, https, exit, cmp.Or(r.Candidate.Country, "-"), took)
	line = withReason(line, r)
	if len(r.Tampering) > 0 {
		line += "  tampers: " + strings.Join(r.Tampering, ", ")
	}
	return strings.TrimRight(line, " ")
}

// targetLine is the result of a check against a target as a line, like resultLine.
func targetLine(r probe.Result) string {
	state, status, took := "dead", "-", "-"
	if r.Alive {
		state, took = "works", fmt.Sprintf("%.0f ms", r.Latency.Total)
	}
	if r.Alive && r.Reason != "" {
		state = "no"
	}
	if r.Status > 0 {
		status = fmt.Sprint(r.Status)
	}
	return withReason(fmt.Sprintf(targetFormat, state, cmp.Or(r.Protocol, "-"), r.Candidate, status, took), r)
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
