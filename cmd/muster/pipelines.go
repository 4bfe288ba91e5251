package main

import (
	"cmp"
	"errors"
	"os"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/urfave/cli/v2"

	"muster/jobs/pipeline"
	"muster/orchestrator/config"
)

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
