package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"muster/orchestrator/config"
)

func configCommand(env environment) *cli.Command {
	return &cli.Command{
		Name:      "config",
		Usage:     "list every setting with its value and origin, or check them; secrets are masked",
		ArgsUsage: "[FILE]",
		Description: `RELOAD is yes for a setting that a running command takes over when its files
change, or at SIGHUP. Others take a restart.

With --check it lists all errors in the settings, or in FILE, and all missing variables
and files that the settings and the definitions of sites refer to. Then the exit code is 1.`,
		Flags: []cli.Flag{&cli.BoolFlag{Name: "check", Usage: "check the settings instead"}, jsonFlag()},
		Action: func(c *cli.Context) error {
			if c.Bool("check") {
				return checkConfig(env, c)
			}
			loaded, err := loadConfig(env, c)
			if err != nil {
				return err
			}
			settings := loaded.Settings()
			if c.Bool("json") {
				return printJSON(env.stdout, settings)
			}
			t := newTable(env.stdout, "SETTING VALUE RELOAD FROM")
			for _, s := range settings {
				reload := "restart"
				if s.Reload {
					reload = "yes"
				}
				t.row(s.Path, fmt.Sprint(s.Value), reload, s.Origin.String())
			}
			return t.flush()
		},
	}
}

// checkConfig checks the settings of the command, or of a file.
func checkConfig(env environment, c *cli.Context) error {
	var loaded *config.Loaded
	var err error
	if file := c.Args().First(); file != "" {
		loaded, err = config.Load(config.Sources{File: file, Environ: secretsOf(env), Check: checkSecrets()})
	} else {
		loaded, err = loadSources(env, c, config.Sources{Check: checkSecrets()})
	}
	if err != nil {
		if wrong := (usageError{}); errors.As(err, &wrong) {
			err = wrong.error // invalid settings are the result of the check, not wrong usage
		}
		return err
	}
	for _, w := range loaded.Warnings {
		fmt.Fprintln(env.stderr, "warning:", w)
	}
	if loaded.Path == "" {
		fmt.Fprintln(env.stdout, "ok: no file, defaults and environment")
	} else {
		fmt.Fprintf(env.stdout, "ok: %s\n", loaded.Path)
	}
	return nil
}

// secretsOf is the environment without settings: those in a file alone are checked.
func secretsOf(env environment) []string {
	return slices.DeleteFunc(slices.Clone(env.environ), func(e string) bool { return strings.HasPrefix(e, "MUSTER_") })
}
