package main

import (
	"context"

	"github.com/urfave/cli/v2"

	"muster/orchestrator/api/client"
)

const proxyArguments = `PROXY is a name from the list, without a password, or host:port, or a host for all
of its ports.`

func banCommand(env environment) *cli.Command {
	return &cli.Command{
		Name:      "ban",
		Usage:     "exclude proxies from a site, or from all sites",
		ArgsUsage: "PROXY…",
		Description: proxyArguments + ` muster proxies list --site SITE --banned
lists the bans from a site.`,
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "site", Usage: "only for `SITE`", DefaultText: "all"},
			&cli.DurationFlag{Name: "for", Usage: "for `DURATION`", DefaultText: "until unban"},
			serverFlag(), jsonFlag(),
		},
		Action: onAPI(env, 1, -1, func(ctx context.Context, c *cli.Context, api *client.Client) error {
			ban := client.ProxyBan{ProxySelection: client.ProxySelection{Proxies: c.Args().Slice()}, Site: c.String("site")}
			if c.IsSet("for") {
				ban.For = c.Duration("for").String()
			}
			done, err := client.BanProxies.Call(ctx, api, client.With[client.ProxyBan]{Body: ban})
			return showDone(env, c, done, err, "%d banned", done.Changed)
		}),
	}
}

func unbanCommand(env environment) *cli.Command {
	return &cli.Command{
		Name:        "unban",
		Usage:       "lift bans of proxies",
		ArgsUsage:   "PROXY…",
		Description: proxyArguments,
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "site", Usage: "lift bans from `SITE`", DefaultText: "bans from all sites"},
			serverFlag(), jsonFlag(),
		},
		Action: onAPI(env, 1, -1, func(ctx context.Context, c *cli.Context, api *client.Client) error {
			done, err := client.UnbanProxies.Call(ctx, api, client.With[client.ProxyUnban]{Body: client.ProxyUnban{ProxySelection: client.ProxySelection{Proxies: c.Args().Slice()}, Site: c.String("site")}})
			return showDone(env, c, done, err, "%d no longer banned", done.Changed)
		}),
	}
}

func deleteCommand(env environment) *cli.Command {
	return &cli.Command{
		Name:      "delete",
		Usage:     "remove proxies from the pool",
		ArgsUsage: "PROXY…",
		Description: proxyArguments + ` A working proxy that a source still lists returns with
the next refresh; use ban to exclude it.`,
		Flags: []cli.Flag{serverFlag(), jsonFlag()},
		Action: onAPI(env, 1, -1, func(ctx context.Context, c *cli.Context, api *client.Client) error {
			done, err := client.DeleteProxies.Call(ctx, api, client.With[client.ProxySelection]{Body: client.ProxySelection{Proxies: c.Args().Slice()}})
			return showDone(env, c, done, err, "%d deleted", done.Changed)
		}),
	}
}
