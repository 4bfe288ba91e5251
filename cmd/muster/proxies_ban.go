package main

import (
	"context"
	"fmt"

	"github.com/urfave/cli/v2"

	"muster/proxies"
)

func banCommand(env environment) *cli.Command {
	return &cli.Command{
		Name:      "ban",
		Usage:     "do not use proxies for a site, or for any",
		ArgsUsage: "PROXY…",
		Description: `A PROXY is named as the list shows it, without its password, as host:port, or as
a host alone for all of its ports. See who is banned from a site with
muster proxies list --site SITE --banned.`,
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "site", Usage: "only for `SITE`", DefaultText: "all"},
			&cli.DurationFlag{Name: "for", Usage: "for `D`", DefaultText: "until lifted"},
			&cli.BoolFlag{Name: "lift", Usage: "end a ban"},
			progressFlag(), jsonFlag(),
		},
		Action: func(c *cli.Context) error {
			if c.Duration("for") < 0 {
				return usageError{fmt.Errorf("proxies ban: --for %s is not positive", c.Duration("for"))}
			}
			if c.Bool("lift") {
				return onMembers(env, c, "free again", func(ctx context.Context, pool *proxies.Pool, ids []string) (int, error) {
					return pool.Unban(ctx, c.String("site"), ids...)
				})
			}
			return onMembers(env, c, "banned", func(ctx context.Context, pool *proxies.Pool, ids []string) (int, error) {
				return len(ids), pool.Ban(ctx, c.String("site"), c.Duration("for"), ids...)
			})
		},
	}
}
