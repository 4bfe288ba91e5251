package main

import (
	"context"
	"fmt"
	"time"

	"github.com/urfave/cli/v2"

	"muster/orchestrator"
	"muster/orchestrator/access"
	"muster/orchestrator/monitor"
)

func auditCommand(env environment) *cli.Command {
	return &cli.Command{
		Name:  "audit",
		Usage: "list changes made through the HTTP API, newest first",
		Description: `The log contains each mutating call with its caller and status, and keys that the
command line created or revoked. The work of agents is in the events of jobs
instead. Muster keeps the last 100,000 entries, each for api.audit_keep.

    muster audit --caller ci --since 24h`,
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "caller", Usage: "only changes by `NAME`, or by the id of a key"},
			&cli.DurationFlag{Name: "since", Usage: "only changes of the last `D`, as in 24h"},
			&cli.IntFlag{Name: "limit", Usage: "at most `N`, from 1 to 100000", Value: 50},
			progressFlag(), watchFlag(), jsonFlag(),
		},
		Action: func(c *cli.Context) error {
			limit, err := within(c, "limit", 1, 100_000)
			if err != nil {
				return err
			}
			filter := access.AuditFilter{Caller: c.String("caller")}
			if d := c.Duration("since"); d < 0 {
				return usageError{fmt.Errorf("--since %v: use a time above 0", d)}
			} else if d > 0 {
				filter.Since = time.Now().Add(-d)
			}
			return withJobs(env, c, 0, 0, func(ctx context.Context, o *orchestrator.Orchestrator, _ *monitor.Display) error {
				list, err := auditEntries(ctx, o.Audit, filter, limit)
				if err != nil {
					return err
				}
				if len(list) == 0 && !c.Bool("json") {
					fmt.Fprintln(env.stdout, "No changes found")
					return nil
				}
				return show(env, c, list, []string{"TIME", "CALLER", "ROLE", "OPERATION", "PATH", "STATUS", "ADDRESS"}, auditRow)
			})
		},
	}
}

// auditEntries returns up to limit entries, from as many pages as that takes.
func auditEntries(ctx context.Context, log *access.Audit, f access.AuditFilter, limit int) ([]access.Entry, error) {
	var all []access.Entry
	for {
		f.Limit = min(limit-len(all), 1000)
		page, err := log.List(ctx, f)
		if err != nil {
			return nil, err
		}
		all = append(all, page.Entries...)
		if f.Before = page.Next; f.Before == "" || len(all) == limit {
			return all, nil
		}
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
