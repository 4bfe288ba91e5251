package main

import (
	"context"
	"fmt"
	"time"

	"github.com/urfave/cli/v2"

	"muster/orchestrator/access"
	"muster/orchestrator/api/client"
)

func auditCommand(env environment) *cli.Command {
	return &cli.Command{
		Name:  "audit",
		Usage: "list changes made through the HTTP API, newest first",
		Description: `The log contains each mutating request with its caller and status, also
requests of commands. The work of agents is in the events of jobs instead. Muster keeps the last 100,000 entries.

    muster audit --caller ci --since 24h`,
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "caller", Usage: "only changes by `NAME`, or by the id of a key"},
			&cli.DurationFlag{Name: "since", Usage: "only changes of the last `D`, as in 24h"},
			&cli.IntFlag{Name: "limit", Usage: "at most `N`, from 1 to 100000", Value: 50},
			serverFlag(), jsonFlag(),
		},
		Action: func(c *cli.Context) error {
			limit, err := within(c, "limit", 1, 100_000)
			if err != nil {
				return err
			}
			filter := client.AuditFilter{Caller: c.String("caller"), Limit: min(limit, 1000)}
			if d := c.Duration("since"); d < 0 {
				return usageError{fmt.Errorf("--since %v: use a time above 0", d)}
			} else if d > 0 {
				filter.Since = time.Now().Add(-d)
			}
			return onAPI(env, 0, 0, func(ctx context.Context, c *cli.Context, api *client.Client) error {
				list, err := client.All(ctx, api, client.ListAudit, filter, limit)
				if err != nil {
					return err
				}
				return showPage(env, c, list, "No changes found", []string{"TIME", "CALLER", "ROLE", "OPERATION", "PATH", "STATUS", "ADDRESS"}, auditRow)
			})(c)
		},
	}
}

func auditRow(e access.Entry) []string {
	path := orDash(e.Path)
	if e.Created != "" {
		path += ", created " + e.Created
	}
	status := "-"
	if e.Status != 0 {
		status = fmt.Sprint(e.Status)
	}
	return []string{e.Time.Format(time.DateTime), e.Caller, string(e.Role), e.Operation, path, status, orDash(e.Address)}
}
