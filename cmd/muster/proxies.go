package main

import (
	"context"
	"fmt"

	"github.com/urfave/cli/v2"

	"muster/orchestrator"
	"muster/orchestrator/api/client"
	"muster/orchestrator/monitor"
	"muster/proxies"
)

var sourceSetting = settingFlag{"source", "proxies.sources", "read candidates from `FILE-OR-URL`; separate several with commas"}

const proxyArguments = `PROXY is a name from the list, without a password, or host:port, or a host for all
of its ports.`

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
				Flags:  append(flagsOf(sourceSetting), jsonFlag()),
				Action: func(c *cli.Context) error { return refreshProxies(env, c) },
			},
			listCommand(env),
			countCommand(env),
			checkCommand(env),
			act(env, &cli.Command{
				Name: "delete", Usage: "remove proxies from the pool", ArgsUsage: "PROXY…",
				Description: proxyArguments + ` A working proxy that a source still lists returns with
the next refresh; use ban to exclude it.`,
			}, client.DeleteProxies, func(_ client.With[client.ProxySelection], out client.ChangedProxies) string {
				return fmt.Sprintf("%d deleted", out.Changed)
			}),
			act(env, &cli.Command{
				Name: "ban", Usage: "exclude proxies from a site, or from all sites", ArgsUsage: "PROXY…",
				Description: proxyArguments + ` muster proxies list --site SITE --banned
lists the bans from a site.`,
			}, client.BanProxies, func(_ client.With[client.ProxyBan], out client.ChangedProxies) string {
				return fmt.Sprintf("%d banned", out.Changed)
			}),
			act(env, &cli.Command{Name: "unban", Usage: "lift bans of proxies", ArgsUsage: "PROXY…", Description: proxyArguments},
				client.UnbanProxies, func(_ client.With[client.ProxyUnban], out client.ChangedProxies) string {
					return fmt.Sprintf("%d no longer banned", out.Changed)
				}),
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
