package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"muster/orchestrator"
	"muster/orchestrator/config"
	"muster/orchestrator/monitor"
	"muster/proxies"
	"muster/proxies/gateway"
	"muster/proxies/probe"
	"muster/proxies/source"
)

var (
	judgeSetting  = settingFlag{name: "judge", path: "proxies.judges", usage: "probe against the judge at `URL`; several with commas"}
	localSetting  = settingFlag{name: "allow-local", path: "proxies.allow_local", usage: "take loopback and private addresses", isBool: true}
	sourceSetting = settingFlag{name: "source", path: "proxies.sources", usage: "read candidates from `FILE-OR-URL`; several with commas"}
)

func proxiesCommand(env environment) *cli.Command {
	refreshSettings := append([]settingFlag{sourceSetting, judgeSetting, localSetting}, workerSettings...)
	checkSettings := []settingFlag{judgeSetting, localSetting, {name: "at-once", path: "proxies.concurrency", usage: "probe `N` at once"}}
	return &cli.Command{
		Name:  "proxies",
		Usage: "refresh, list, count, check, export and serve the pool of proxies",
		Subcommands: []*cli.Command{
			{
				Name:   "refresh",
				Usage:  "collect candidates from the sources, check them, publish those that work",
				Flags:  append(flagsOf(refreshSettings...), progressFlag(), jsonFlag()),
				Action: func(c *cli.Context) error { return refreshProxies(env, c, refreshSettings) },
			},
			{
				Name:  "list",
				Usage: "list the pool, the fastest first",
				Flags: []cli.Flag{
					&cli.StringFlag{Name: "protocol", Usage: "only those that speak `P`: http, https, socks4, socks4a or socks5"},
					&cli.StringFlag{Name: "anonymity", Usage: "at least `GRADE`: transparent, anonymous or elite", Value: probe.Anonymous},
					&cli.BoolFlag{Name: "https", Usage: "only those through which TLS gets"},
					&cli.DurationFlag{Name: "max-latency", Usage: "only those that answer within `D`"},
					progressFlag(), jsonFlag(),
				},
				Action: func(c *cli.Context) error { return listProxies(env, c) },
			},
			{
				Name:   "count",
				Usage:  "count the pool",
				Flags:  []cli.Flag{progressFlag(), jsonFlag()},
				Action: func(c *cli.Context) error { return countProxies(env, c) },
			},
			{
				Name:      "check",
				Usage:     "tell what each proxy of a list is worth, as it is found; changes no pool",
				ArgsUsage: "[PROXY…]",
				Description: `Without --judge it uses a judge of its own on loopback, which only proxies on
this machine can reach; see muster judge.`,
				Flags: append(flagsOf(checkSettings...),
					&cli.StringFlag{Name: "file", Usage: "read the list from `FILE`, a URL, or - for standard input"},
					progressFlag(), jsonFlag()),
				Action: func(c *cli.Context) error { return checkProxies(env, c, checkSettings) },
			},
			{
				Name:      "export",
				Usage:     "write the usable proxies to live_proxies.json, .txt and .csv",
				ArgsUsage: "[DIR]",
				Flags:     []cli.Flag{progressFlag()},
				Action:    func(c *cli.Context) error { return exportProxies(env, c) },
			},
			{
				Name:  "serve",
				Usage: "offer the pool as one rotating proxy, until interrupted",
				Description: `Speaks HTTP, CONNECT and SOCKS5. A client may ask by its user name:
user-session-abc keeps one proxy for a session, user-country-bg wants a country.`,
				Flags: []cli.Flag{
					&cli.StringFlag{Name: "listen", Usage: "listen at `ADDR`; beyond loopback it needs --key-file", Value: "127.0.0.1:8089"},
					&cli.StringFlag{Name: "key-file", Usage: "let in who gives a line of `FILE` as the password"},
					progressFlag(),
				},
				Action: func(c *cli.Context) error { return serveProxies(env, c) },
			},
		},
	}
}

func refreshProxies(env environment, c *cli.Context, settings []settingFlag) error {
	if err := arguments(c, 0, 0); err != nil {
		return err
	}
	loaded, err := loadConfig(env, c, settings...)
	if err != nil {
		return err
	}
	return withSystem(env, c, loaded, true, func(ctx context.Context, o *orchestrator.Orchestrator, display *monitor.Display) error {
		report, err := o.RefreshProxies(ctx)
		if err != nil {
			return err
		}
		display.Close()
		if c.Bool("json") {
			return printJSON(env.stdout, report)
		}
		fmt.Fprintf(env.stdout, "%d candidates, %d alive, %d usable; %d in the pool\n", report.Candidates, report.Alive, report.Usable, report.Live)
		printReasons(env, report.Reasons)
		return nil
	})
}

func listProxies(env environment, c *cli.Context) error {
	if err := arguments(c, 0, 0); err != nil {
		return err
	}
	filter := proxies.Filter{Anonymity: c.String("anonymity"), HTTPS: c.Bool("https"), MaxLatency: c.Duration("max-latency")}
	if grades := []string{probe.Transparent, probe.Anonymous, probe.Elite}; !slices.Contains(grades, filter.Anonymity) {
		return usageError{fmt.Errorf("no grade of anonymity %q%s; use %s", filter.Anonymity, suggest(filter.Anonymity, grades), strings.Join(grades, ", "))}
	}
	if p := c.String("protocol"); p != "" {
		if !slices.Contains(source.Protocols, p) {
			return usageError{fmt.Errorf("no protocol %q%s; use one of %s", p, suggest(p, source.Protocols), strings.Join(source.Protocols, ", "))}
		}
		filter.Protocols = []string{p}
	}
	return withPool(env, c, func(ctx context.Context, pool *proxies.Pool) error {
		list, err := pool.List(ctx, filter)
		if err != nil {
			return err
		}
		if c.Bool("json") {
			return printJSON(env.stdout, append([]proxies.Member{}, list...)) // [], not null
		}
		t := newTable(env.stdout, "PROXY", "ANONYMITY", "EXIT", "HTTPS", "LATENCY", "OK", "SCORE", "CHECKED")
		for _, m := range list {
			https := "no"
			if m.Can.HTTPS {
				https = "yes"
			}
			exit := "-"
			if m.Exit.IsValid() {
				exit = m.Exit.String()
			}
			t.row(m.String(), cmp.Or(m.Anonymity, "-"), exit, https, fmt.Sprintf("%.0f ms", m.LatencyMS),
				fmt.Sprintf("%.0f%%", 100*m.Health.OK), fmt.Sprintf("%.2f", m.Score), m.CheckedAt.Local().Format(time.DateTime))
		}
		return t.flush()
	})
}

func countProxies(env environment, c *cli.Context) error {
	if err := arguments(c, 0, 0); err != nil {
		return err
	}
	return withPool(env, c, func(ctx context.Context, pool *proxies.Pool) error {
		live, err := pool.Count(ctx)
		if err != nil {
			return err
		}
		usable, err := pool.Usable(ctx)
		if err != nil {
			return err
		}
		if c.Bool("json") {
			return printJSON(env.stdout, map[string]int{"live": live, "usable": usable})
		}
		fmt.Fprintf(env.stdout, "%d live, %d usable\n", live, usable)
		return nil
	})
}

func exportProxies(env environment, c *cli.Context) error {
	if err := arguments(c, 0, 1); err != nil {
		return err
	}
	return withPool(env, c, func(ctx context.Context, pool *proxies.Pool) error {
		dir := cmp.Or(c.Args().First(), ".")
		n, err := pool.Export(ctx, dir)
		if err != nil {
			return err
		}
		fmt.Fprintf(env.stdout, "%d proxies written to %s\n", n, dir)
		return nil
	})
}

func serveProxies(env environment, c *cli.Context) error {
	if err := arguments(c, 0, 0); err != nil {
		return err
	}
	var keys []string
	if path := c.String("key-file"); path != "" {
		text, err := os.ReadFile(path)
		if err != nil {
			return fmt.Errorf("read the keys: %w", err)
		}
		if keys = strings.Fields(string(text)); len(keys) == 0 {
			return usageError{fmt.Errorf("there is no key in %s", path)}
		}
	}
	return withPool(env, c, func(ctx context.Context, pool *proxies.Pool) error {
		front, err := gateway.New(gateway.Config{Pool: pool, Listen: c.String("listen"), Keys: keys, Logger: newLogger(env, env.stderr, config.Log{Level: "warn"})})
		if err != nil {
			return err
		}
		return front.Run(ctx, func(addr net.Addr) { fmt.Fprintf(env.stderr, "proxy: %s\n", addr) })
	})
}

// withPool runs fn with the pool, on the Redis of a running orchestrator or
// one brought up for the moment.
func withPool(env environment, c *cli.Context, fn func(context.Context, *proxies.Pool) error) error {
	loaded, err := loadConfig(env, c)
	if err != nil {
		return err
	}
	if _, ok := given(c, "log-level"); !ok {
		loaded.Log.Level = "warn" // the answer is what was asked for
	}
	return withSystem(env, c, loaded, true, func(ctx context.Context, o *orchestrator.Orchestrator, _ *monitor.Display) error {
		return fn(ctx, o.Pool)
	})
}

func checkProxies(env environment, c *cli.Context, settings []settingFlag) error {
	loaded, err := loadConfig(env, c, settings...)
	if err != nil {
		return err
	}
	if c.String("file") == "" && c.NArg() == 0 {
		return usageError{errors.New("proxies check: name a list with --file, or proxies; usage: muster proxies check [--file FILE] [PROXY…]")}
	}
	cfg := probe.Config{Judges: loaded.Proxies.Judges, Key: loaded.Proxies.JudgeKey, Concurrency: loaded.Proxies.Concurrency, Logger: newLogger(env, env.stderr, loaded.Log)}
	local := loaded.Proxies.AllowLocal
	if len(cfg.Judges) == 0 {
		judge, err := probe.StartJudge(probe.JudgeConfig{})
		if err != nil {
			return err
		}
		defer judge.Close()
		cfg.Judges = judge.URLs
		fmt.Fprintf(env.stderr, "judging by %s, which only proxies on this machine can reach\n", judge.URLs[0])
	}
	for _, judge := range cfg.Judges {
		if u, err := url.Parse(judge); err == nil && onLoopback(u.Host) {
			local = true // whoever judges on this machine has proxies of this machine in mind
		}
	}
	candidates, err := candidatesOf(env, c, local)
	if err != nil {
		return err
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
	track := display.Track("check")
	var tally proxies.Tally
	enc := json.NewEncoder(env.stdout)
	err = prober.Each(c.Context, slices.Values(candidates), func(r probe.Result) {
		tally.Add(r)
		track.Update(monitor.Progress{Done: int64(tally.Checked), Total: int64(len(candidates)), Unit: "proxies",
			Note: fmt.Sprintf("%d alive, %d usable", tally.Alive, tally.Usable)})
		if c.Bool("json") {
			_ = enc.Encode(r) // a reader that went away ends the command by its signal
			return
		}
		fmt.Fprintln(env.stdout, resultLine(r))
	})
	if err != nil {
		track.Fail(oneLine(err))
		return err
	}
	track.Done(fmt.Sprintf("%d checked, %d alive, %d usable", tally.Checked, tally.Alive, tally.Usable))
	display.Close()
	if !c.Bool("json") {
		printReasons(env, tally.Reasons)
	}
	return nil
}

// candidatesOf reads the list and the proxies that a command names.
func candidatesOf(env environment, c *cli.Context, local bool) ([]source.Candidate, error) {
	var lists []source.List
	if file := c.String("file"); file != "" {
		list, err := (&source.Fetcher{Stdin: env.stdin}).Fetch(c.Context, source.Source{URL: file, AllowLocal: local})
		if err != nil {
			return nil, err
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
	state, grade, exit, took := "dead", "-", "-", "-"
	if r.Alive {
		state, grade, took = "alive", cmp.Or(r.Anonymity, "-"), fmt.Sprintf("%.0f ms", r.Latency.Connect+r.Latency.Handshake+r.Latency.FirstByte)
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
	line := fmt.Sprintf("%-5s  %-7s  %-34s  %-15s  %-15s  %8s", state, cmp.Or(r.Protocol, "-"), r.Candidate, grade, exit, took)
	if r.Reason != "" {
		line += "  " + string(r.Reason)
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
