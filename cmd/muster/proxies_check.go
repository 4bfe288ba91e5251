package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"muster/orchestrator"
	"muster/orchestrator/config"
	"muster/orchestrator/monitor"
	"muster/proxies"
	"muster/proxies/geo"
	"muster/proxies/probe"
	"muster/proxies/source"
)

// probeSettings are how proxies are checked, for every command that does so.
var probeSettings = []settingFlag{
	judgeSetting, publicJudgeSetting, localSetting, maxListSetting, mmdbSetting,
	{name: "at-once", path: "proxies.concurrency", usage: "probe `N` at once"},
	{name: "timeout", path: "proxies.check_timeout", usage: "take at most `D` for a proxy, and as long again for one that works"},
	{name: "connect-timeout", path: "proxies.check_connect_timeout", usage: "give a proxy `D` to accept a connection"},
	{name: "tries", path: "proxies.check_tries", usage: "try a proxy that gives no answer `N` times"},
}

func checkCommand(env environment) *cli.Command {
	return &cli.Command{
		Name:      "check",
		Usage:     "tell what each proxy of a list is worth, as it is found; changes no pool",
		ArgsUsage: "[PROXY…]",
		Description: `Without --judge it uses a judge of its own on loopback, which only proxies on
this machine can reach; see muster judge. Ctrl-C ends it with what is known.`,
		Flags: append(flagsOf(probeSettings...),
			&cli.StringFlag{Name: "file", Usage: "read the list from `FILE`, a URL, or - for standard input"},
			&cli.BoolFlag{Name: "alive", Usage: "print only those that work"},
			progressFlag(), jsonFlag()),
		Action: func(c *cli.Context) error { return checkProxies(env, c) },
	}
}

func checkProxies(env environment, c *cli.Context) error {
	loaded, err := loadConfig(env, c, probeSettings...)
	if err != nil {
		return err
	}
	if c.String("file") == "" && c.NArg() == 0 {
		return usageError{errors.New("proxies check: name a list with --file, or proxies; usage: muster proxies check [--file FILE] [PROXY…]")}
	}
	cfg := orchestrator.ProbeConfig(loaded.Config, newLogger(env, env.stderr, loaded.Log))
	if len(cfg.Judges)+len(cfg.PublicJudges) == 0 {
		judge, err := probe.StartJudge(probe.JudgeConfig{})
		if err != nil {
			return err
		}
		defer judge.Close()
		cfg.Judges = judge.URLs
		fmt.Fprintf(env.stderr, "judging by %s, which only proxies on this machine can reach\n", judge.URLs[0])
	}
	loaded.Proxies.AllowLocal = loaded.Proxies.AllowLocal || judgedHere(cfg.Judges)
	cfg.Filter = loaded.ProxyFilter()
	candidates, err := candidatesOf(env, c, loaded.Config, loaded.Proxies.AllowLocal)
	if err != nil {
		return err
	}
	places, err := geo.Open(loaded.Proxies.MMDB...)
	if err != nil {
		return usageError{err}
	}
	prober, err := probe.New(cfg)
	if err != nil {
		return err
	}
	if err := prober.Start(c.Context); err != nil {
		return err
	}
	display, err := newDisplay(env, c)
	if err != nil {
		return err
	}
	defer display.Close()
	return showResults(env, c, display, "check", len(candidates), func(report func(probe.Result)) error {
		return prober.Each(c.Context, slices.Values(candidates), func(r probe.Result) {
			r.Candidate.Country = cmp.Or(places.Lookup(r.Exit).Country, r.Candidate.Country)
			report(r)
		})
	})
}

// judgedHere tells whether a judge is on this machine: whoever judges here has proxies of this machine in mind.
func judgedHere(judges []string) bool {
	return slices.ContainsFunc(judges, func(judge string) bool {
		u, err := url.Parse(judge)
		return err == nil && onLoopback(u.Host)
	})
}

// showResults prints results as run reports them, with a bar above which they scroll, and sums up however run ends.
func showResults(env environment, c *cli.Context, display *monitor.Display, name string, total int, run func(report func(probe.Result)) error) error {
	track := display.Track(name)
	var out io.Writer = env.stdout
	if env.terminal() && isTerminal(env.stdout) { // a line of its own would tear the bar
		out = display
	}
	var tally proxies.Tally
	enc := json.NewEncoder(out)
	began := time.Now()
	err := run(func(r probe.Result) {
		tally.Add(r)
		track.Update(monitor.Progress{Done: int64(tally.Checked), Total: int64(total), Unit: "proxies", Note: pace(tally, total, time.Since(began))})
		switch {
		case c.Bool("alive") && !r.Accepted():
		case c.Bool("json"):
			_ = enc.Encode(r) // a reader that went away ends the command by its signal
		default:
			fmt.Fprintln(out, resultLine(r))
		}
	})
	summary := fmt.Sprintf("%d of %d checked: %d alive, %d usable, %d elite", tally.Checked, total, tally.Alive, tally.Usable, tally.Elite)
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

// pace is how a check comes along, in a few words.
func pace(t proxies.Tally, total int, took time.Duration) string {
	note := fmt.Sprintf("%d alive, %d dead", t.Alive, t.Checked-t.Alive)
	if seconds := took.Seconds(); seconds >= 1 {
		rate := float64(t.Checked) / seconds
		note += fmt.Sprintf(", %.0f/s, %s left", rate, time.Duration(float64(total-t.Checked)/rate*float64(time.Second)).Round(time.Second))
	}
	return note
}

func addCommand(env environment) *cli.Command {
	return &cli.Command{
		Name:      "add",
		Usage:     "check proxies and put those that work into the pool",
		ArgsUsage: "[PROXY…]",
		Flags: append(flagsOf(probeSettings...),
			&cli.StringFlag{Name: "file", Usage: "read the list from `FILE`, a URL, or - for standard input"},
			&cli.BoolFlag{Name: "no-check", Usage: "take them as they are; one without a scheme is taken for http"},
			progressFlag(), jsonFlag()),
		Action: func(c *cli.Context) error { return addProxies(env, c) },
	}
}

func addProxies(env environment, c *cli.Context) error {
	if c.String("file") == "" && c.NArg() == 0 {
		return usageError{errors.New("proxies add: name proxies, or a list with --file; usage: muster proxies add [--file FILE] [PROXY…]")}
	}
	loaded, err := loadConfig(env, c, probeSettings...)
	if err != nil {
		return err
	}
	if _, ok := given(c, "log-level"); !ok {
		loaded.Log.Level = "warn"
	}
	candidates, err := candidatesOf(env, c, loaded.Config, loaded.Proxies.AllowLocal || judgedHere(loaded.Proxies.Judges) || len(loaded.Proxies.Judges)+len(loaded.Proxies.PublicJudges) == 0)
	if err != nil {
		return err
	}
	return withSystem(env, c, loaded, true, func(ctx context.Context, o *orchestrator.Orchestrator, display *monitor.Display) error {
		if !c.Bool("no-check") {
			return showResults(env, c, display, "add", len(candidates), func(report func(probe.Result)) error {
				return o.CheckProxies(ctx, candidates, report)
			})
		}
		added, err := o.Pool.Add(ctx, uncheckedProxies(candidates)...)
		if err != nil {
			return err
		}
		if c.Bool("json") {
			return printJSON(env.stdout, map[string]int{"added": added, "known": len(candidates) - added})
		}
		fmt.Fprintf(env.stdout, "%d added, %d were in the pool before\n", added, len(candidates)-added)
		return nil
	})
}

func uncheckedProxies(candidates []source.Candidate) []proxies.Proxy {
	list := make([]proxies.Proxy, len(candidates))
	for i, p := range candidates {
		p.Protocol = strings.TrimSuffix(cmp.Or(p.Protocol, "http"), "h") // socks5h is what we do with socks5
		list[i] = proxies.Proxy{Protocol: p.Protocol, Host: p.Host, Port: p.Port, Username: p.Username, Password: p.Password, Country: p.Country, Sources: p.Sources}
	}
	return list
}

// maxChecked is how many proxies one list may have; a check holds them all in memory.
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
		for reason, n := range list.Rejects {
			fmt.Fprintf(env.stderr, "left out %d: %s\n", n, reason)
		}
		lists = append(lists, list)
	}
	if c.NArg() > 0 {
		parsed, err := source.Parse(strings.NewReader(strings.Join(c.Args().Slice(), "\n")), source.Options{AllowLocal: true})
		if err != nil {
			return nil, err
		}
		if len(parsed.Candidates) < c.NArg() {
			return nil, usageError{fmt.Errorf("of the %d proxies named only %d can be read; write them as host:port or scheme://user:password@host:port", c.NArg(), len(parsed.Candidates))}
		}
		lists = append(lists, source.List{Candidates: parsed.Candidates})
	}
	return source.Merge(lists), nil
}

// resultLine is a result for people, in columns that need no second pass.
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
	line := fmt.Sprintf("%-5s  %-7s  %-34s  %-15s  %-9s  %-15s  %-2s  %8s", state, cmp.Or(r.Protocol, "-"), r.Candidate, grade, https, exit, cmp.Or(r.Candidate.Country, "-"), took)
	if r.Reason != "" {
		line += "  " + string(r.Reason)
	}
	if len(r.Tampering) > 0 {
		line += "  tampers: " + strings.Join(r.Tampering, ", ")
	}
	return strings.TrimRight(line, " ")
}

// printReasons tells why proxies were not taken, the most frequent first.
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
	fmt.Fprintln(env.stderr, "not taken:", strings.Join(words, ", "))
}
