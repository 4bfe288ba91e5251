package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"muster/internal/counts"
	"muster/orchestrator"
	"muster/orchestrator/config"
	"muster/orchestrator/monitor"
	"muster/proxies"
	"muster/proxies/geo"
	"muster/proxies/probe"
	"muster/proxies/source"
)

func checkCommand(env environment) *cli.Command {
	return &cli.Command{
		Name:      "check",
		Usage:     "check the proxies of a list and print each result at once; --add adds working ones to the pool",
		ArgsUsage: "[PROXY…]",
		Description: `Without proxies.judges it starts a judge on loopback, which only proxies on this machine
can reach; see muster judge. Ctrl-C stops it and prints the results so far.

With --target it uses no judge: a proxy works if it returns that page with a
status of 2xx, the text of --expect in the first MiB, and over https a valid
certificate. Redirects are not followed. Without a list it checks the pool.`,
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "target", Usage: "fetch `URL` through each proxy"},
			&cli.StringFlag{Name: "expect", Usage: "with --target, the page must contain `TEXT`; required for an http URL"},
			&cli.StringFlag{Name: "file", Usage: "read the list from `FILE`, a URL, or - for standard input"},
			&cli.BoolFlag{Name: "add", Usage: "add working proxies to the pool"},
			&cli.BoolFlag{Name: "no-check", Usage: "with --add, add them without a check; one without a scheme is http"},
			&cli.BoolFlag{Name: "alive", Usage: "print only working proxies"},
			jsonFlag(),
		},
		Action: func(c *cli.Context) error { return checkProxies(env, c) },
	}
}

func checkProxies(env environment, c *cli.Context) error {
	loaded, err := loadSources(env, c, config.Sources{Default: quietly})
	if err != nil {
		return err
	}
	named, target := c.String("file") != "" || c.NArg() > 0, c.String("target")
	switch {
	case c.Bool("add") && target != "", c.Bool("no-check") && !c.Bool("add"):
		return usageError{errors.New("proxies check: --add and --target exclude each other, and --no-check needs --add")}
	case c.IsSet("expect") && target == "":
		return usageError{errors.New("proxies check: --expect is a text of the page that --target names")}
	case !named && target == "":
		return usageError{errors.New("proxies check: name a list with --file, or proxies; usage: muster proxies check [--file FILE] [PROXY…]")}
	case c.Bool("add"):
		return addProxies(env, c, loaded)
	}
	cfg := orchestrator.ProbeConfig(loaded.Config, newLogger(env, env.stderr, loaded.Log))
	by := cfg.Judges
	switch {
	case target != "":
		by, cfg.Judges, cfg.Target = []string{target}, nil, &probe.Target{URL: target, Expect: c.String("expect")}
	case len(by) == 0:
		judge, err := probe.StartJudge(probe.JudgeConfig{})
		if err != nil {
			return err
		}
		defer judge.Close()
		by, cfg.Judges = judge.URLs, judge.URLs
		fmt.Fprintf(env.stderr, "judging by %s, which only proxies on this machine can reach\n", judge.URLs[0])
	}
	loaded.Proxies.AllowLocal = loaded.Proxies.AllowLocal || judgedHere(by)
	cfg.Filter = loaded.ProxyFilter()
	places, err := geo.Open(loaded.Proxies.MMDB...)
	if err != nil {
		return usageError{err}
	}
	prober, err := probe.New(cfg)
	if err != nil {
		return usageError{err}
	}
	check := func(ctx context.Context, candidates []source.Candidate) error {
		if err := prober.Start(ctx); err != nil {
			return err
		}
		display := env.display()
		defer display.Close()
		return showResults(env, c, display, len(candidates), func(report func(probe.Result)) error {
			return prober.Each(ctx, slices.Values(candidates), func(r probe.Result) {
				r.Candidate.Country = cmp.Or(places.Lookup(r.Exit).Country, r.Candidate.Country)
				report(r)
			})
		})
	}
	if named {
		candidates, err := candidatesOf(env, c, loaded.Config, loaded.Proxies.AllowLocal)
		if err != nil {
			return err
		}
		return check(c.Context, candidates)
	}
	return withPool(env, c, func(ctx context.Context, pool *proxies.Pool) error {
		members, err := pool.List(ctx, proxies.Everything)
		if err != nil {
			return err
		}
		if len(members) == 0 {
			return errors.New("the pool is empty; fill it with muster proxies refresh, or name proxies")
		}
		candidates := make([]source.Candidate, len(members))
		for i, m := range members {
			candidates[i] = m.Candidate
			candidates[i].Known = true
		}
		return check(ctx, candidates)
	})
}

// maxChecked is the limit of proxies in a list; a check has them all in memory.
const maxChecked = 1_000_000

// candidatesOf reads the list and the proxies that a command names.
func candidatesOf(env environment, c *cli.Context, cfg config.Config, local bool) ([]source.Candidate, error) {
	var lists []source.List
	if file := c.String("file"); file != "" {
		list, err := (&source.Fetcher{Stdin: env.stdin, MaxBytes: cfg.Proxies.MaxListBytes(), Filter: cfg.Network.Filter()}).Fetch(c.Context, source.Source{URL: file, AllowLocal: local, Max: maxChecked})
		if err != nil {
			return nil, err
		}
		if n := list.Rejects[source.Capped]; n > 0 {
			return nil, fmt.Errorf("source %s: it has %d proxies more than the %d that are checked at once; split it", list.Source, n, maxChecked)
		}
		if rejected := list.Describe("line"); rejected != "" {
			fmt.Fprintln(env.stderr, "rejected:", rejected)
		}
		lists = append(lists, list)
	}
	if c.NArg() > 0 {
		parsed, err := source.Parse(strings.NewReader(strings.Join(c.Args().Slice(), "\n")), source.Options{AllowLocal: true})
		if err != nil {
			return nil, err
		}
		if len(parsed.Candidates) < c.NArg() {
			return nil, usageError{fmt.Errorf("cannot read the proxies named: %s; write them as host:port or, with special characters %%-encoded, scheme://user:password@host:port", parsed.Describe("argument"))}
		}
		lists = append(lists, source.List{Parsed: parsed})
	}
	return source.Merge(lists), nil
}

// judgedHere reports whether a judge or a target is on this machine. Then proxies on this machine are meant to be checked.
func judgedHere(judges []string) bool {
	return slices.ContainsFunc(judges, func(judge string) bool {
		u, err := url.Parse(judge)
		return err == nil && onLoopback(u.Host)
	})
}

// addProxies adds the named proxies to the pool: the working ones, or with --no-check all.
func addProxies(env environment, c *cli.Context, loaded *config.Loaded) error {
	candidates, err := candidatesOf(env, c, loaded.Config, loaded.Proxies.AllowLocal || judgedHere(loaded.Proxies.Judges) || len(loaded.Proxies.Judges) == 0)
	if err != nil {
		return err
	}
	return withSystem(env.creating(), c, loaded, true, func(ctx context.Context, o *orchestrator.Orchestrator, display *monitor.Display) error {
		if !c.Bool("no-check") {
			return showResults(env, c, display, len(candidates), func(report func(probe.Result)) error {
				return o.CheckProxies(ctx, candidates, report)
			})
		}
		added, err := o.Pool.Add(ctx, uncheckedProxies(candidates)...)
		if err != nil {
			return err
		}
		if c.Bool("json") {
			return printJSON(env.stdout, addedProxies{added, len(candidates) - added})
		}
		fmt.Fprintf(env.stdout, "%d added, %d were in the pool before\n", added, len(candidates)-added)
		return nil
	})
}

// addedProxies is the JSON result of proxies check --add --no-check.
type addedProxies struct {
	Added int `json:"added"`
	Known int `json:"known"` // were in the pool before
}

func uncheckedProxies(candidates []source.Candidate) []proxies.Proxy {
	list := make([]proxies.Proxy, len(candidates))
	for i, p := range candidates {
		p.Protocol = strings.TrimSuffix(cmp.Or(p.Protocol, "http"), "h") // socks5 resolves names at the proxy here, as socks5h does
		list[i] = proxies.Proxy{Candidate: p}
	}
	return list
}

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
	if len(reasons) > 0 {
		fmt.Fprintln(env.stderr, "rejected:", counts.Text(reasons))
	}
}
