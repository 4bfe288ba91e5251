package main

import (
	"context"
	"fmt"
	"slices"

	"github.com/urfave/cli/v2"

	"muster/proxies"
)

func removeCommand(env environment) *cli.Command {
	return &cli.Command{
		Name:      "remove",
		Usage:     "remove proxies from the pool",
		ArgsUsage: "PROXY…",
		Description: `A PROXY is named as the list shows it, without its password, as host:port, or as
a host alone for all of its ports. One that still stands in a source comes back with the next refresh
if it works: use ban to keep it away.`,
		Flags: []cli.Flag{progressFlag(), jsonFlag()},
		Action: func(c *cli.Context) error {
			return onMembers(env, c, "removed", func(ctx context.Context, pool *proxies.Pool, ids []string) (int, error) {
				return pool.Remove(ctx, ids...)
			})
		},
	}
}

// changedProxies is the JSON result of commands that change proxies of the pool.
type changedProxies struct {
	Done    int      `json:"done"`
	Proxies []string `json:"proxies"` // their ids
}

// onMembers calls do with the proxies that a command names. If one of them is not in the pool, that is an error and do
// is not called.
func onMembers(env environment, c *cli.Context, done string, do func(context.Context, *proxies.Pool, []string) (int, error)) error {
	if err := arguments(c, 1, -1); err != nil {
		return err
	}
	return withPool(env, c, func(ctx context.Context, pool *proxies.Pool) error {
		var ids []string
		for _, name := range c.Args().Slice() {
			found, err := pool.Find(ctx, name)
			if err != nil {
				return err
			}
			if len(found) == 0 {
				return fmt.Errorf("no proxy %s in the pool; see muster proxies list --anonymity transparent", withoutPassword(name))
			}
			for _, m := range found {
				ids = append(ids, m.ID)
			}
		}
		slices.Sort(ids)
		n, err := do(ctx, pool, slices.Compact(ids))
		if err != nil {
			return err
		}
		if c.Bool("json") {
			return printJSON(env.stdout, changedProxies{n, slices.Compact(ids)})
		}
		fmt.Fprintf(env.stdout, "%d %s\n", n, done)
		return nil
	})
}
