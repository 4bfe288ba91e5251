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
			apiCommand(env, &cli.Command{
				Name: "list", Usage: "list the agents, with their state and load, or all fields of one", ArgsUsage: "[AGENT]",
				Description: `AGENT is an ID or a name. --hours counts the work of agents by hour in UTC, newest
first. An assignment counts in the hour in which it ended.

    muster agents list --role creator
    muster agents list reviewer-1
    muster agents list --hours 3`,
				Flags: []cli.Flag{&cli.StringFlag{Name: "role", Usage: "only agents of `ROLE`"}, jsonFlag()},
			}, listAgents),
			apiCommand(env, &cli.Command{
				Name: "delete", Usage: "delete an agent; its assignments go to other agents", ArgsUsage: "AGENT",
				Description: "An agent that still runs must register again.",
			}, func(s scope, in client.AgentPath) error {
				a, err := findAgent(s.ctx, s.api, in.ID)
				if err != nil {
					return err
				}
				return done(env, client.DeleteAgent.Do(s.ctx, s.api, client.AgentPath{ID: a.ID}), "deleted: %s", a.Name)
			}),
		},
	}
}

func listAgents(s scope, in client.ActivityFilter) error {
	if s.IsSet("hours") {
		return printAll(s, client.GetAgentsActivity, in, "No activity found", "HOUR AGENT ASSIGNMENTS FAILED REQUESTS TOKENS AVERAGE", func(a agent.Activity) []any {
			return []any{a.Hour.Format("2006-01-02 15:04"), a.Name, a.Assignments, a.Failed, a.Requests, a.Tokens, time.Duration(a.AverageSeconds * float64(time.Second))}
		})
	}
	if name := s.Args().First(); name != "" {
		a, err := findAgent(s.ctx, s.api, name)
		if err != nil {
			return err
		}
		return s.showFields(a)
	}
	list, err := client.All(s.ctx, s.api, client.ListAgents, client.None{}, 0)
	if err != nil {
		return err
	}
	if role := s.String("role"); role != "" {
		list = slices.DeleteFunc(list, func(a agent.Agent) bool { return !slices.Contains(a.Roles, role) })
	}
	return showPage(s, list, "No agents found", "AGENT ROLES STATE LOAD DONE FAILED SEEN", func(a agent.Agent) []any {
		return []any{a.Name, a.Roles, a.State, fmt.Sprintf("%d/%d", a.Held, a.Capacity), a.Done, a.Failed, a.LastSeen}
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
