package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/urfave/cli/v2"

	"muster/jobs/agent"
	"muster/orchestrator/api/client"
)

func agentsActivityCommand(env environment) *cli.Command {
	return &cli.Command{
		Name: "activity", Usage: "show the work of agents by hour", ArgsUsage: "[AGENT]",
		Description: `Hours are in UTC, the newest first. An assignment counts in the hour in which
it ended. AGENT is the id or the name of one.

    muster agents activity --hours 3`,
		Flags: []cli.Flag{
			&cli.IntFlag{Name: "hours", Value: agent.MaxHours, Usage: fmt.Sprintf("show `N` hours, up to %d", agent.MaxHours)},
			serverFlag(), watchFlag(), jsonFlag(),
		},
		Action: onAgents(env, 0, 1, showActivity),
	}
}

func showActivity(ctx context.Context, c *cli.Context, env environment, api *client.Client) error {
	hours := c.Int("hours")
	if hours < 1 || hours > agent.MaxHours {
		return usageError{fmt.Errorf("--hours %d: give 1 to %d", hours, agent.MaxHours)}
	}
	list, err := api.AgentActivity(ctx, hours)
	if err != nil {
		return err
	}
	if name := c.Args().First(); name != "" {
		one, err := findAgent(ctx, api, name)
		if err != nil {
			return err
		}
		list = slices.DeleteFunc(list, func(a agent.Activity) bool { return a.Agent != one.ID })
	}
	return showPage(env, c, list, "No activity found", []string{"HOUR", "AGENT", "ASSIGNMENTS", "FAILED", "REQUESTS", "TOKENS", "AVERAGE"}, func(a agent.Activity) []string {
		average := time.Duration(a.AverageSeconds * float64(time.Second)).Round(time.Millisecond)
		return []string{a.Hour.Format("2006-01-02 15:04"), a.Name, fmt.Sprint(a.Assignments), fmt.Sprint(a.Failed),
			fmt.Sprint(a.Requests), fmt.Sprint(a.Tokens), average.String()}
	})
}
