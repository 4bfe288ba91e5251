package main

import (
	"cmp"
	"context"
	"fmt"

	"github.com/urfave/cli/v2"

	"muster/proxies"
)

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
