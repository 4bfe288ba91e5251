package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/goccy/go-yaml"
	"github.com/urfave/cli/v2"

	"muster/internal/nearest"
	"muster/jobs/agent"
	"muster/jobs/pipeline"
	"muster/orchestrator/api/client"
	"muster/orchestrator/config"
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

    muster agents list reviewer-1
    muster agents list --hours 3`,
				Flags: []cli.Flag{jsonFlag()},
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
	return printAll(s, client.ListAgents, client.None{}, "No agents found", "AGENT ROLES STATE LOAD DONE FAILED SEEN", func(a agent.Agent) []any {
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
		return one, fmt.Errorf("no agent %q%s; see muster agents list", name, nearest.Hint(name, names))
	}
	return one, fmt.Errorf("%d agents have the name %s; use an id: %s", len(found), name, strings.Join(found, ", "))
}

func pipelinesCommand(env environment) *cli.Command {
	return &cli.Command{
		Name:  "pipelines",
		Usage: "list, print and check pipelines: the stages of jobs",
		Description: `    muster pipelines get default > data/pipelines/mine.yaml
    muster pipelines list
    muster jobs start mine --prompt …`,
		Subcommands: []*cli.Command{
			{
				Name: "list", Usage: "list the pipelines and their stages; exit 1 if one is invalid",
				Description: `Errors in definitions are listed with file:line:column.

    muster pipelines list`,
				Flags:  []cli.Flag{jsonFlag()},
				Action: withPipelines(env, listPipelines),
			},
			{
				Name: "get", Usage: "print a pipeline with all defaults, as YAML", ArgsUsage: "NAME-OR-FILE",
				Description: `Errors in definitions are listed with file:line:column.

    muster pipelines get default
    muster pipelines get mine.yaml`,
				Flags:  []cli.Flag{jsonFlag()},
				Action: withPipelines(env, showPipeline),
			},
		},
	}
}

// withPipelines is the action of a command on pipelines. It needs no Redis.
func withPipelines(env environment, fn func(environment, *cli.Context, config.Config) error) cli.ActionFunc {
	return func(c *cli.Context) error {
		loaded, err := loadConfig(env, c)
		if err != nil {
			return err
		}
		return fn(env, c, loaded.Config)
	}
}

func listPipelines(env environment, c *cli.Context, cfg config.Config) error {
	registry, err := pipeline.Load(cfg.Pipelines())
	if err != nil {
		return err
	}
	err = showPage(scope{Context: c, env: env}, registry.List(), "No pipelines found", "PIPELINE STAGES FILE", func(p *pipeline.Pipeline) []any {
		var stages []string
		for _, st := range p.Stages {
			stages = append(stages, st.Name+" ("+st.Worker()+")")
		}
		return []any{p.Name, strings.Join(stages, " → "), cmp.Or(registry.File(p.Name), "shipped")}
	})
	return errors.Join(err, brokenPipelines(registry))
}

func showPipeline(env environment, c *cli.Context, cfg config.Config) error {
	p, err := pipelineOf(cfg, c.Args().First())
	if err != nil {
		return err
	}
	if c.Bool("json") {
		return printJSON(env.stdout, p)
	}
	data, err := yaml.MarshalWithOptions(p, yaml.OmitEmpty())
	if err == nil {
		_, err = env.stdout.Write(data)
	}
	return err
}

// pipelineOf returns the pipeline of a file, or with a name.
func pipelineOf(cfg config.Config, name string) (*pipeline.Pipeline, error) {
	if isDefinitionFile(name) {
		data, err := os.ReadFile(name)
		if err != nil {
			return nil, err
		}
		return pipeline.Parse(name, data)
	}
	registry, err := pipeline.Load(cfg.Pipelines())
	if err != nil {
		return nil, err
	}
	return registry.Get(name)
}

// brokenPipelines is an error with the problems of the pipelines that cannot be used.
func brokenPipelines(registry *pipeline.Registry) error {
	broken := registry.Broken()
	if len(broken) == 0 {
		return nil
	}
	lines := []string{count(len(broken), "pipeline") + " cannot be used"}
	for _, b := range broken {
		lines = append(lines, b.Err.Error())
	}
	return errors.New(strings.Join(lines, "\n"))
}
