package main

import (
	"context"

	"github.com/urfave/cli/v2"

	"muster/orchestrator"
	"muster/orchestrator/config"
	"muster/tasks"
)

// fleet is the workers and Redis that a command talks to.
type fleet struct {
	*tasks.Client
	cfg    config.Config
	loaded *config.Loaded
	env    environment
}

// withClient returns the action of a command that talks to a running fleet,
// takes least to most arguments, and has flags for the given settings.
func withClient(env environment, least, most int, fn func(context.Context, *cli.Context, fleet) error, settings ...settingFlag) cli.ActionFunc {
	return func(c *cli.Context) error {
		if err := arguments(c, least, most); err != nil {
			return err
		}
		loaded, err := loadConfig(env, c, settings...)
		if err != nil {
			return err
		}
		client, err := orchestrator.Connect(c.Context, loaded.Config)
		if err != nil {
			return err
		}
		defer client.Close()
		return fn(c.Context, c, fleet{client, loaded.Config, loaded, env})
	}
}
