package main

import (
	"context"
	"fmt"

	"github.com/urfave/cli/v2"

	"muster/proxies"
)

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
			return printJSON(env.stdout, poolCount{live, usable})
		}
		fmt.Fprintf(env.stdout, "%d live, %d usable\n", live, usable)
		return nil
	})
}

// poolCount is the JSON result of proxies count.
type poolCount struct {
	Live   int `json:"live"`
	Usable int `json:"usable"`
}
