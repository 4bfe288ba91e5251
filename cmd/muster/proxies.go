package main

import (
	"context"

	"github.com/urfave/cli/v2"

	"muster/orchestrator"
	"muster/orchestrator/monitor"
	"muster/proxies"
)

var (
	judgeSetting  = settingFlag{name: "judge", path: "proxies.judges", usage: "check proxies with the judge at `URL`; separate several with commas"}
	localSetting  = settingFlag{name: "allow-local", path: "proxies.allow_local", usage: "accept loopback and private addresses", isBool: true}
	sourceSetting = settingFlag{name: "source", path: "proxies.sources", usage: "read candidates from `FILE-OR-URL`; separate several with commas"}
)

func proxiesCommand(env environment) *cli.Command {
	return &cli.Command{
		Name:  "proxies",
		Usage: "check proxies, list the pool, serve it as one proxy",
		Subcommands: []*cli.Command{
			{
				Name:  "refresh",
				Usage: "collect candidates from the sources, check them, and publish working proxies",
				Description: `Working proxies are in the pool as soon as they are found. After Ctrl-C they stay
there, and the next refresh continues where this one stopped.`,
				Flags:  append(flagsOf(sourceSetting, judgeSetting, localSetting), progressFlag(), jsonFlag()),
				Action: func(c *cli.Context) error { return refreshProxies(env, c) },
			},
			listCommand(env),
			countCommand(env),
			checkCommand(env),
			deleteCommand(env),
			banCommand(env),
			unbanCommand(env),
			exportCommand(env),
			serveCommand(env),
		},
	}
}

// withPool runs fn with the pool, on the Redis of a running orchestrator or one
// that is started for it.
func withPool(env environment, c *cli.Context, fn func(context.Context, *proxies.Pool) error) error {
	loaded, err := loadConfig(env, c)
	if err != nil {
		return err
	}
	if _, ok := flagValue(c, "log-level"); !ok {
		loaded.Log.Level = "warn"
	}
	return withSystem(env, c, loaded, true, func(ctx context.Context, o *orchestrator.Orchestrator, _ *monitor.Display) error {
		return fn(ctx, o.Pool)
	})
}
