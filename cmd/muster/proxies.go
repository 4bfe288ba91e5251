package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/urfave/cli/v2"

	"muster/orchestrator"
	"muster/orchestrator/monitor"
	"muster/proxies"
)

var (
	judgeSetting       = settingFlag{name: "judge", path: "proxies.judges", usage: "probe against the judge at `URL`; several with commas"}
	publicJudgeSetting = settingFlag{name: "public-judge", path: "proxies.public_judges", usage: "without a judge, probe against a page of others at `URL` that shows headers"}
	localSetting       = settingFlag{name: "allow-local", path: "proxies.allow_local", usage: "take loopback and private addresses", isBool: true}
	mmdbSetting        = settingFlag{name: "mmdb", path: "proxies.mmdb", usage: "tell countries and networks by the database `FILE`; several with commas"}
	publicSetting      = settingFlag{name: "public", path: "proxies.public", usage: "read the shipped list of public sources too", isBool: true}
	maxListSetting     = settingFlag{name: "max-list-mb", path: "proxies.max_list_mb", usage: "refuse a list of more than `N` MiB"}
	sourceSetting      = settingFlag{name: "source", path: "proxies.sources", usage: "read candidates from `FILE-OR-URL`; several with commas"}
)

func proxiesCommand(env environment) *cli.Command {
	refreshSettings := slices.Concat([]settingFlag{sourceSetting, publicSetting}, probeSettings, workerSettings)
	return &cli.Command{
		Name:  "proxies",
		Usage: "the pool of proxies: fill it, look at it, lend it",
		Subcommands: []*cli.Command{
			{
				Name:  "refresh",
				Usage: "collect candidates from the sources, check them, publish those that work",
				Description: `Those that work are in the pool as soon as they are found. After Ctrl-C they stay
there, and the next refresh goes on where this one was.`,
				Flags:  append(flagsOf(refreshSettings...), progressFlag(), jsonFlag()),
				Action: func(c *cli.Context) error { return refreshProxies(env, c, refreshSettings) },
			},
			listCommand(env),
			{
				Name:   "count",
				Usage:  "count the pool",
				Flags:  []cli.Flag{progressFlag(), jsonFlag()},
				Action: func(c *cli.Context) error { return countProxies(env, c) },
			},
			{
				Name:   "stats",
				Usage:  "the pool in numbers",
				Flags:  []cli.Flag{progressFlag(), jsonFlag()},
				Action: func(c *cli.Context) error { return statsProxies(env, c) },
			},
			sourcesCommand(env),
			checkCommand(env),
			addCommand(env),
			removeCommand(env),
			banCommand(env),
			{
				Name:      "export",
				Usage:     "write the usable proxies to live_proxies.json, .txt and .csv in DIR, or their URLs to -",
				ArgsUsage: "[DIR]",
				Flags:     []cli.Flag{progressFlag()},
				Action:    func(c *cli.Context) error { return exportProxies(env, c) },
			},
			serveCommand(env),
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
		if err != nil && ctx.Err() != nil {
			return errors.Join(err, tellKept(env, o))
		}
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

// tellKept says what an interrupted refresh has left.
func tellKept(env environment, o *orchestrator.Orchestrator) error {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	usable, err := o.Pool.Usable(ctx)
	if err != nil {
		return err
	}
	if _, err = o.Pool.Export(ctx, o.Config().DataDir); err == nil {
		fmt.Fprintf(env.stderr, "%d usable proxies are in the pool; the refresh goes on with the next one\n", usable)
	}
	return err
}

func exportProxies(env environment, c *cli.Context) error {
	if err := arguments(c, 0, 1); err != nil {
		return err
	}
	return withPool(env, c, func(ctx context.Context, pool *proxies.Pool) error {
		dir := cmp.Or(c.Args().First(), ".")
		if dir == "-" {
			members, err := pool.List(ctx, proxies.Filter{})
			for _, m := range members {
				fmt.Fprintln(env.stdout, m.URL())
			}
			return err
		}
		n, err := pool.Export(ctx, dir)
		if err != nil {
			return err
		}
		fmt.Fprintf(env.stdout, "%d proxies written to %s\n", n, dir)
		return nil
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
