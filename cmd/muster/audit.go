package main

import (
	"fmt"
	"time"

	"github.com/urfave/cli/v2"

	"muster/orchestrator/access"
	"muster/orchestrator/api/client"
)

func auditCommand(env environment) *cli.Command {
	return list(env, &cli.Command{
		Name:  "audit",
		Usage: "list changes made through the HTTP API, newest first",
		Description: `The log contains each mutating request with its caller and status, also
requests of commands. The work of agents is in the events of jobs instead. Muster keeps the last 100,000 entries.`,
		Flags: []cli.Flag{&cli.IntFlag{Name: "limit", Usage: "at most `N`", Value: 50}},
	}, client.ListAudit, "No changes found", "TIME CALLER ROLE OPERATION PATH STATUS ADDRESS", func(e access.Entry) []any {
		path, status := orDash(e.Path), ""
		if e.Created != "" {
			path += ", created " + e.Created
		}
		if e.Status != 0 {
			status = fmt.Sprint(e.Status)
		}
		return []any{e.Time.Format(time.DateTime), e.Caller, e.Role, e.Operation, path, status, e.Address}
	})
}
