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
		Description: `PROXY is a name from the list, without a password, or host:port, or a host for all
its ports. A working proxy that a source still lists returns with the next
refresh; use ban to exclude it.`,
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
