package main

import (
	"fmt"
	"slices"

	"github.com/urfave/cli/v2"
)

//go:generate go test -run TestManual -update .

func manCommand(env environment) *cli.Command {
	return &cli.Command{
		Name: "man", Hidden: true, Usage: "print the manual page",
		Description: `    muster man > /usr/local/share/man/man1/muster.1
    muster man | man -l -`,
		Action: func(c *cli.Context) error {
			app := newApp(env) // the library changes the flags of the running one
			withUsageText(app.Commands)
			page, err := app.ToManWithSection(1)
			if err == nil {
				_, err = fmt.Fprint(env.stdout, page)
			}
			return err
		},
	}
}

// withUsageText makes the descriptions of commands the usage texts that the manual page prints, and removes the flags that
// all commands have.
func withUsageText(commands []*cli.Command) {
	for _, c := range commands {
		c.UsageText = c.Description
		c.Flags = slices.DeleteFunc(c.Flags, isGlobal)
		withUsageText(c.Subcommands)
	}
}
