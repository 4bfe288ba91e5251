package main

import (
	"context"
	"fmt"
	"time"

	"github.com/urfave/cli/v2"

	"muster/tasks"
)

func inspectWorkflow(ctx context.Context, c *cli.Context, client fleet) error {
	id := c.Args().First()
	nodes, err := client.Nodes(ctx, id)
	if err != nil {
		return err
	}
	if c.Bool("json") {
		return printJSON(client.env.stdout, nodes)
	}
	p, err := tasks.Attach[any](client.Client, id).Progress(ctx)
	if err != nil {
		return err
	}
	fmt.Fprintf(client.env.stdout, "%s  %s  %d of %d tasks are done\n\n", id, p.Status, p.Done, p.Total)
	return writeTree(client.env.stdout, nodes, treeOptions{width: columnsOf(client.env.stdout), all: c.Bool("all"), now: time.Now()})
}
