package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/urfave/cli/v2"

	"muster/orchestrator"
	"muster/orchestrator/config"
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
	loaded, err := loadConfig(env, c)
	if err != nil {
		return err
	}
	named := c.String("file") != "" || c.NArg() > 0
	switch {
	case c.Bool("add") && c.String("target") != "", c.Bool("no-check") && !c.Bool("add"):
		return usageError{errors.New("proxies check: --add and --target exclude each other, and --no-check needs --add")}
	case c.String("target") != "":
		return checkTarget(env, c, loaded.Config, named)
	case c.IsSet("expect"):
		return usageError{errors.New("proxies check: --expect is a text of the page that --target names")}
	case !named:
		return usageError{errors.New("proxies check: name a list with --file, or proxies; usage: muster proxies check [--file FILE] [PROXY…]")}
	}
	if c.Bool("add") {
		return addProxies(env, c, loaded)
	}
	cfg := orchestrator.ProbeConfig(loaded.Config, newLogger(env, env.stderr, loaded.Log))
	if len(cfg.Judges) == 0 {
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
	display := env.display()
	defer display.Close()
	return showResults(env, c, display, len(candidates), func(report func(probe.Result)) error {
		return prober.Each(c.Context, slices.Values(candidates), func(r probe.Result) {
			r.Candidate.Country = cmp.Or(places.Lookup(r.Exit).Country, r.Candidate.Country)
			report(r)
		})
	})
}

// checkTarget checks the named proxies, or the proxies of the pool, against the target of the user.
func checkTarget(env environment, c *cli.Context, cfg config.Config, named bool) error {
	probing := orchestrator.ProbeConfig(cfg, newLogger(env, env.stderr, cfg.Log))
	probing.Judges = nil
	probing.Target = &probe.Target{URL: c.String("target"), Expect: c.String("expect")}
	prober, err := probe.New(probing)
	if err != nil {
		return usageError{err}
	}
	check := func(ctx context.Context, candidates []source.Candidate) error {
		display := env.display()
		defer display.Close()
		return showResults(env, c, display, len(candidates), func(report func(probe.Result)) error {
			return prober.Each(ctx, slices.Values(candidates), report)
		})
	}
	if named {
		candidates, err := candidatesOf(env, c, cfg, cfg.Proxies.AllowLocal || judgedHere([]string{probing.Target.URL}))
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
			candidates[i] = m.Candidate()
			candidates[i].Known = true
		}
		return check(ctx, candidates)
	})
}
