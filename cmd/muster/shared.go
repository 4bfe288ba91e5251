package main

import "github.com/urfave/cli/v2"

// shared wraps the action of a command with the behaviour that all commands share.
func shared(env environment, action cli.ActionFunc) cli.ActionFunc {
	return func(c *cli.Context) error {
		if value, ok := flagValue(c, "quiet"); ok && value != "false" {
			screenOf(env.stderr).mute()
		}
		if err := arguments(c); err != nil {
			return err
		}
		return action(c)
	}
}
