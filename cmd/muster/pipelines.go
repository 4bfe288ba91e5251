package main

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/urfave/cli/v2"

	"muster/jobs/pipeline"
	"muster/orchestrator/config"
)

// pipelinesSetting is the folder of pipelines.
var pipelinesSetting = settingFlag{name: "pipelines-dir", path: "jobs.pipelines", usage: "read pipelines from `DIR`"}

func pipelinesCommand(env environment) *cli.Command {
	return &cli.Command{
		Name:  "pipelines",
		Usage: "list, print and check pipelines: the stages that jobs go through",
		Description: `    muster pipelines get default > data/pipelines/mine.yaml
    muster pipelines check data/pipelines/mine.yaml
    muster jobs start mine --prompt …`,
		Subcommands: []*cli.Command{
			{
				Name: "list", Usage: "list the pipelines and their stages",
				Description: "    muster pipelines list",
				Flags:       append(flagsOf(pipelinesSetting), watchFlag(), jsonFlag()),
				Action:      withPipelines(env, 0, 0, listPipelines),
			},
			{
				Name: "get", Usage: "print a pipeline with all defaults, as YAML", ArgsUsage: "NAME",
				Description: "    muster pipelines get default",
				Flags:       append(flagsOf(pipelinesSetting), jsonFlag()),
				Action:      withPipelines(env, 1, 1, showPipeline),
			},
			{
				Name: "check", Usage: "validate pipeline definitions: files, or all known pipelines", ArgsUsage: "[FILE…]",
				Description: `Each mistake is a line with file:line:column; with one the exit code is 1.

    muster pipelines check mine.yaml`,
				Flags:  flagsOf(pipelinesSetting),
				Action: withPipelines(env, 0, -1, checkPipelines),
			},
		},
	}
}

// withPipelines is the action of a command on pipelines. It needs no Redis.
func withPipelines(env environment, least, most int, fn func(environment, *cli.Context, config.Config) error) cli.ActionFunc {
	return func(c *cli.Context) error {
		if err := arguments(c, least, most); err != nil {
			return err
		}
		loaded, err := loadConfig(env, c, pipelinesSetting)
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
	err = showPage(env, c, registry.List(), "No pipelines found", []string{"PIPELINE", "STAGES", "FILE"}, func(p *pipeline.Pipeline) []string {
		var stages []string
		for _, st := range p.Stages {
			stages = append(stages, st.Name+" ("+st.Worker()+")")
		}
		return []string{p.Name, strings.Join(stages, " → "), cmp.Or(registry.File(p.Name), "shipped")}
	})
	return errors.Join(err, brokenPipelines(registry))
}

func showPipeline(env environment, c *cli.Context, cfg config.Config) error {
	registry, err := pipeline.Load(cfg.Pipelines())
	if err != nil {
		return err
	}
	p, err := registry.Get(c.Args().First())
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

// checkPipelines prints which pipelines are valid; the error has the problems of the others.
func checkPipelines(env environment, c *cli.Context, cfg config.Config) error {
	files := c.Args().Slice()
	if len(files) == 0 {
		registry, err := pipeline.Load(cfg.Pipelines())
		if err != nil {
			return err
		}
		for _, p := range registry.List() {
			fmt.Fprintf(env.stdout, "ok: %s\n", p.Name)
		}
		return brokenPipelines(registry)
	}
	var errs []error
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err == nil {
			_, err = pipeline.Parse(file, data)
		}
		if err != nil {
			errs = append(errs, err)
			continue
		}
		fmt.Fprintf(env.stdout, "ok: %s\n", file)
	}
	return problemLines(errs)
}

// brokenPipelines is an error with the problems of the pipelines that cannot be used.
func brokenPipelines(registry *pipeline.Registry) error {
	var errs []error
	for _, b := range registry.Broken() {
		errs = append(errs, b.Err)
	}
	return problemLines(errs)
}

// problemLines is one error of some: a count, and each problem on a line.
func problemLines(errs []error) error {
	if len(errs) == 0 {
		return nil
	}
	lines := []string{fmt.Sprintf("%d pipelines cannot be used", len(errs))}
	if len(errs) == 1 {
		lines[0] = "a pipeline cannot be used"
	}
	for _, err := range errs {
		lines = append(lines, strings.Split(err.Error(), "\n")...)
	}
	return errors.New(strings.Join(slices.Compact(lines), "\n"))
}
