package main

import (
	"errors"
	"fmt"
	"path/filepath"

	"github.com/urfave/cli/v2"

	"muster/orchestrator/redisd"
	"muster/tasks"
	"muster/tasks/embedded"
)

func storeCommand(env environment) *cli.Command {
	return &cli.Command{
		Name: "store", Usage: "the data of the embedded Redis",
		Subcommands: []*cli.Command{{
			Name: "copy", Usage: "copy the data directory's embedded Redis into a Redis server",
			Description: `Stop muster start and the workers first. The Redis must be empty, and later commands
need --redis URL, or redis.url in the settings. The data directory stays as it is.`,
			Flags: []cli.Flag{&cli.StringFlag{Name: "to", Usage: "the `URL` of the Redis, as for --redis"}},
			Action: func(c *cli.Context) error {
				if !c.IsSet("to") {
					return usageError{errors.New("--to is missing: name the Redis, for example --to redis://host:6379/0")}
				}
				loaded, err := loadConfig(env, c)
				if err != nil {
					return err
				}
				client, err := tasks.Connect(c.Context, c.String("to"))
				if err != nil {
					return err
				}
				defer func() { _ = client.Close() }()
				n, err := embedded.Copy(c.Context, filepath.Join(loaded.DataDir, "redis"), client.Redis())
				if err != nil {
					return err
				}
				_, err = fmt.Fprintf(env.stdout, "copied %d keys; continue with muster start --redis %s\n", n, redisd.Redact(c.String("to")))
				return err
			},
		}},
	}
}
