package main

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/urfave/cli/v2"

	"muster/orchestrator"
	"muster/orchestrator/config"
	"muster/sites/definition"
)

func sitesCommand(env environment) *cli.Command {
	settings := []settingFlag{{name: "sites-dir", path: "sites.dir", usage: "read site definitions from `DIR` too"}}
	return &cli.Command{
		Name:  "sites",
		Usage: "list, show and check site definitions",
		Subcommands: []*cli.Command{
			{
				Name:  "list",
				Usage: "list the sites",
				Flags: append(flagsOf(settings...), jsonFlag()),
				Action: func(c *cli.Context) error {
					if err := arguments(c, 0, 0); err != nil {
						return err
					}
					loaded, err := loadConfig(env, c, settings...)
					if err != nil {
						return err
					}
					return listSites(env, loaded.Config, c.Bool("json"))
				},
			},
			{
				Name:      "show",
				Usage:     "print the definition of a site",
				ArgsUsage: "SITE",
				Flags:     flagsOf(settings...),
				Action: func(c *cli.Context) error {
					if err := arguments(c, 1, 1); err != nil {
						return err
					}
					loaded, err := loadConfig(env, c, settings...)
					if err != nil {
						return err
					}
					registry, err := orchestrator.LoadSites(loaded.Config)
					if err != nil {
						return err
					}
					def, err := registry.Definition(c.Args().First())
					if err != nil {
						return usageError{err}
					}
					_, err = env.stdout.Write(def.YAML())
					return err
				},
			},
			{
				Name:      "check",
				Usage:     "tell what is wrong with definitions: files, folders, or without any all that are known",
				ArgsUsage: "[FILE-OR-DIR…]",
				Flags:     flagsOf(settings...),
				Action: func(c *cli.Context) error {
					loaded, err := loadConfig(env, c, settings...)
					if err != nil {
						return err
					}
					return checkSites(env, loaded.Config, c.Args().Slice())
				},
			},
		},
	}
}

func listSites(env environment, cfg config.Config, asJSON bool) error {
	registry, err := orchestrator.LoadSites(cfg)
	if err != nil {
		return err
	}
	type row struct {
		Site        string `json:"site"`
		BaseURL     string `json:"base_url"`
		File        string `json:"file,omitempty"` // empty for a shipped one
		Schedule    string `json:"schedule,omitempty"`
		Description string `json:"description,omitempty"`
	}
	rows := []row{}
	for _, name := range registry.Names() {
		def, err := registry.Definition(name)
		if err != nil {
			return err
		}
		rows = append(rows, row{def.Site, def.BaseURL, def.File(), cfg.Sites.Schedule[name], def.Description})
	}
	if asJSON {
		return printJSON(env.stdout, rows)
	}
	t := newTable(env.stdout, "SITE", "START", "SCHEDULE", "FROM", "DESCRIPTION")
	for _, r := range rows {
		t.row(r.Site, r.BaseURL, cmp.Or(r.Schedule, "-"), cmp.Or(r.File, "shipped"), strings.TrimSpace(r.Description))
	}
	return t.flush()
}

// checkSites loads definitions and says of each that it is right, or what is
// wrong with it.
func checkSites(env environment, cfg config.Config, paths []string) error {
	if len(paths) == 0 {
		registry, err := orchestrator.LoadSites(cfg)
		if err != nil {
			return err
		}
		for _, name := range registry.Names() {
			fmt.Fprintf(env.stdout, "ok: %s\n", name)
		}
		return nil
	}
	var errs []error
	for _, path := range paths {
		info, err := os.Stat(path)
		var defs []*definition.Definition
		switch {
		case err != nil:
		case info.IsDir():
			defs, err = definition.LoadDir(path)
		default:
			var def *definition.Definition
			if def, err = definition.Load(path); err == nil {
				defs = append(defs, def)
			}
		}
		errs = append(errs, err)
		for _, def := range defs {
			fmt.Fprintf(env.stdout, "ok: %s (%s)\n", def.Site, def.File())
		}
	}
	return errors.Join(errs...)
}
