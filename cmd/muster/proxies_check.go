package main

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/urfave/cli/v2"

	"muster/orchestrator"
	"muster/proxies/geo"
	"muster/proxies/probe"
)

// probeSettings are how proxies are checked, for every command that does so.
var probeSettings = []settingFlag{
	judgeSetting, publicJudgeSetting, localSetting, maxListSetting, mmdbSetting,
	{name: "at-once", path: "proxies.concurrency", usage: "probe `N` at once"},
	{name: "timeout", path: "proxies.check_timeout", usage: "take at most `D` for a proxy, and twice that for one that works"},
	{name: "connect-timeout", path: "proxies.check_connect_timeout", usage: "give a proxy `D` to accept a connection"},
	{name: "tries", path: "proxies.check_tries", usage: "try a proxy that gives no answer `N` times"},
}

func checkCommand(env environment) *cli.Command {
	return &cli.Command{
		Name:      "check",
		Usage:     "check the proxies of a list and print each result at once; does not change the pool",
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
