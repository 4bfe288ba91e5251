package main

import "github.com/urfave/cli/v2"

func showSiteCommand(env environment) *cli.Command {
	return &cli.Command{
		Name:         "get",
		Usage:        "print the definition of a site",
		ArgsUsage:    "SITE-OR-FILE",
		BashComplete: completeSites(env),
		Action: func(c *cli.Context) error {
			def, err := siteOf(env, c, c.Args().First())
			if err != nil {
				return err
			}
			_, err = env.stdout.Write(def.YAML())
			return err
		},
	}
}
