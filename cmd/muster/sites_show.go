package main

import (
	"errors"

	"github.com/urfave/cli/v2"

	"muster/sites/definition"
)

func showSiteCommand(env environment) *cli.Command {
	return &cli.Command{
		Name:      "show",
		Usage:     "print the definition of a site",
		ArgsUsage: "SITE-OR-FILE",
		Flags: append(flagsOf(sitesSetting),
			&cli.BoolFlag{Name: "origins", Usage: "every setting, and where it comes from: default, the file's line, or a flag"},
			&cli.StringFlag{Name: "base-url", Usage: "as with scrape, for --origins"}, jsonFlag()),
		BashComplete: completeSites(env),
		Action: func(c *cli.Context) error {
			if err := arguments(c, 1, 1); err != nil {
				return err
			}
			if !c.Bool("origins") && (c.Bool("json") || c.String("base-url") != "") {
				return usageError{errors.New("sites show: --json and --base-url belong to --origins")}
			}
			def, err := siteOf(env, c, c.Args().First())
			if err != nil {
				return err
			}
			if c.Bool("origins") {
				return showOrigins(env, def, c.String("base-url"), c.Bool("json"))
			}
			_, err = env.stdout.Write(def.YAML())
			return err
		},
	}
}

func showOrigins(env environment, def *definition.Definition, baseURL string, asJSON bool) error {
	settings := def.Settings()
	if baseURL != "" {
		if _, err := def.WithBase(baseURL); err != nil {
			return usageError{err}
		}
		for i := range settings {
			if settings[i].Key == "base_url" {
				settings[i].Value, settings[i].From = baseURL, "--base-url"
			}
		}
	}
	if asJSON {
		return printJSON(env.stdout, settings)
	}
	t := newTable(env.stdout, "KEY", "VALUE", "FROM")
	for _, s := range settings {
		t.row(s.Key, s.Value, s.From)
	}
	return t.flush()
}
