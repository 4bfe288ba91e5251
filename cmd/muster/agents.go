package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"muster/jobs/agent"
	"muster/orchestrator/api/client"
)

func agentsCommand(env environment) *cli.Command {
	return &cli.Command{
		Name:  "agents",
		Usage: "list and delete agents: the programs that do the work of jobs",
		Description: `Agents register with the HTTP interface of muster start, or are in the setting
agents.static.

    muster agents list`,
		Subcommands: []*cli.Command{
			{
				Name: "list", Usage: "list the agents, with their state and load, or all fields of one", ArgsUsage: "[AGENT]",
				Description: `AGENT is an ID or a name. --hours counts the work of agents by hour in UTC, newest
first. An assignment counts in the hour in which it ended.

    muster agents list --role creator
    muster agents list reviewer-1
    muster agents list --hours 3`,
				Flags: []cli.Flag{
					&cli.StringFlag{Name: "role", Usage: "only agents of `ROLE`"},
					&cli.IntFlag{Name: "hours", Usage: fmt.Sprintf("show their work in the last `N` hours instead, up to %d", agent.MaxHours)},
					serverFlag(), jsonFlag(),
				},
				Action: onAPI(env, 0, 1, func(ctx context.Context, c *cli.Context, api *client.Client) error {
					return listAgents(ctx, c, env, api)
				}),
			},
			{
				Name: "delete", Usage: "delete an agent; its assignments go to other agents", ArgsUsage: "AGENT",
				Description: `An agent that still runs must register again.

    muster agents delete reviewer-1`,
				Flags: []cli.Flag{serverFlag()},
				Action: onAPI(env, 1, 1, func(ctx context.Context, c *cli.Context, api *client.Client) error {
					a, err := findAgent(ctx, api, c.Args().First())
					if err != nil {
						return err
					}
					return done(env, client.DeleteAgent.Do(ctx, api, client.AgentPath{ID: a.ID}), "deleted: %s", a.Name)
				}),
			},
		},
	}
}

func listAgents(ctx context.Context, c *cli.Context, env environment, api *client.Client) error {
	if c.IsSet("hours") {
		return showActivity(ctx, c, env, api)
	}
	if name := c.Args().First(); name != "" {
		a, err := findAgent(ctx, api, name)
		switch {
		case err != nil:
			return err
		case c.Bool("json"):
			return printJSON(env.stdout, a)
		}
		return printFields(env.stdout, a)
	}
	list, err := client.All(ctx, api, client.ListAgents, client.None{}, 0)
	if err != nil {
		return err
	}
	if role := c.String("role"); role != "" {
		list = slices.DeleteFunc(list, func(a agent.Agent) bool { return !slices.Contains(a.Roles, role) })
	}
	return showPage(env, c, list, "No agents found", []string{"AGENT", "ROLES", "STATE", "LOAD", "DONE", "FAILED", "SEEN"}, func(a agent.Agent) []string {
		return []string{a.Name, strings.Join(a.Roles, ","), a.State, fmt.Sprintf("%d/%d", a.Held, a.Capacity),
			fmt.Sprint(a.Done), fmt.Sprint(a.Failed), age(a.LastSeen)}
	})
}

// findAgent returns the agent of an id, or the only one of a name.
func findAgent(ctx context.Context, api *client.Client, name string) (agent.Agent, error) {
	list, err := client.All(ctx, api, client.ListAgents, client.None{}, 0)
	if err != nil {
		return agent.Agent{}, err
	}
	var found, names []string
	var one agent.Agent
	for _, a := range list {
		if a.ID == name {
			return a, nil
		}
		if names = append(names, a.Name); a.Name == name {
			found, one = append(found, a.ID), a
		}
	}
	switch len(found) {
	case 1:
		return one, nil
	case 0:
		return one, fmt.Errorf("no agent %q%s; see muster agents list", name, suggest(name, names))
	}
	return one, fmt.Errorf("%d agents have the name %s; use an id: %s", len(found), name, strings.Join(found, ", "))
}

func showActivity(ctx context.Context, c *cli.Context, env environment, api *client.Client) error {
	if err := arguments(c, 0, 0); err != nil {
		return err
	}
	list, err := client.All(ctx, api, client.GetAgentsActivity, client.ActivityFilter{Hours: c.Int("hours")}, 0)
	if err != nil {
		return err
	}
	return showPage(env, c, list, "No activity found", []string{"HOUR", "AGENT", "ASSIGNMENTS", "FAILED", "REQUESTS", "TOKENS", "AVERAGE"}, func(a agent.Activity) []string {
		average := time.Duration(a.AverageSeconds * float64(time.Second)).Round(time.Millisecond)
		return []string{a.Hour.Format("2006-01-02 15:04"), a.Name, fmt.Sprint(a.Assignments), fmt.Sprint(a.Failed),
			fmt.Sprint(a.Requests), fmt.Sprint(a.Tokens), average.String()}
	})
}
