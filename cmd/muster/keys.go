package main

import (
	"context"
	"fmt"
	"time"

	"github.com/urfave/cli/v2"

	"muster/orchestrator/access"
	"muster/orchestrator/api/client"
)

func keysCommand(env environment) *cli.Command {
	return &cli.Command{
		Name:  "keys",
		Usage: "create, list and revoke the keys of the HTTP interface",
		Description: `As soon as a key exists, every request to the HTTP API needs one. A program sends
it as Authorization: Bearer KEY, a browser as the password of its login.
Permissions of the roles:

    viewer    read
    operator  read, and change jobs, agents and sites
    admin     everything: keys, webhooks, the audit log and the queues, too
    agent     lease and complete work, and read the jobs and documents of that work

    muster keys create --name ci --role operator --expires 720h
    muster keys revoke ci`,
		Subcommands: []*cli.Command{
			{
				Name: "create", Usage: "create a key and print it",
				Description: `The key is the only line on standard output. It is not stored, and cannot be
shown again.

    muster keys create --name creator --role agent --agent-role creator > creator.key`,
				Flags: []cli.Flag{
					&cli.StringFlag{Name: "name", Usage: "`NAME` of the user; keys with the same name own the same agents"},
					&cli.StringFlag{Name: "role", Usage: "permissions of the key: `ROLE` is viewer, operator, admin or agent"},
					&cli.StringSliceFlag{Name: "agent-role", Usage: "of a key of the role agent: a `ROLE` that its agents may have; may be repeated", DefaultText: "any"},
					&cli.StringFlag{Name: "expires", Usage: "expire at `TIME`: a duration such as 720h, or a date such as 2027-01-31", DefaultText: "never"},
					serverFlag(), jsonFlag(),
				},
				Action: createKey(env),
			},
			{
				Name: "list", Usage: "list all keys, including revoked and expired ones",
				Flags:  []cli.Flag{serverFlag(), jsonFlag()},
				Action: listAll(env, client.ListKeys, "No keys found", []string{"ID", "NAME", "ROLE", "STATE", "CREATED", "EXPIRES", "USED"}, keyRow),
			},
			{
				Name: "revoke", Usage: "revoke a key; within two seconds no process accepts it", ArgsUsage: "ID|NAME",
				Description: `    muster keys revoke ci`,
				Flags:       []cli.Flag{serverFlag(), jsonFlag()},
				Action: onAPI(env, 1, 1, func(ctx context.Context, c *cli.Context, api *client.Client) error {
					key, err := client.RevokeKey.Call(ctx, api, client.KeyPath{ID: c.Args().First()})
					return showDone(env, c, key, err, "revoked: key %s (%s)", key.Name, key.ID)
				}),
			},
		},
	}
}

func keyRow(k client.Key) []string {
	expires := "never"
	if !k.Expires.IsZero() {
		expires = k.Expires.Format(time.RFC3339)
	}
	return []string{k.ID, k.Name, string(k.Role), k.State, age(k.Created), expires, age(k.Used)}
}

func createKey(env environment) cli.ActionFunc {
	return func(c *cli.Context) error {
		for _, name := range []string{"name", "role"} {
			if c.String(name) == "" {
				return usageError{fmt.Errorf("--%s is missing; usage: muster keys create --name NAME --role ROLE", name)}
			}
		}
		role, err := access.ParseRole(c.String("role"))
		if err != nil {
			return usageError{err}
		}
		n := client.NewKey{Name: c.String("name"), Role: string(role), AgentRoles: c.StringSlice("agent-role")}
		expires, err := endOf(c.String("expires"), time.Now())
		if err != nil {
			return usageError{err}
		}
		if !expires.IsZero() {
			n.Expires = &expires
		}
		return onAPI(env.creating(), 0, 0, func(ctx context.Context, c *cli.Context, api *client.Client) error {
			key, err := client.CreateKey.Call(ctx, api, client.With[client.NewKey]{Body: n})
			if err != nil {
				return err
			}
			if c.Bool("json") {
				return printJSON(env.stdout, key)
			}
			fmt.Fprintln(env.stdout, key.Secret)
			fmt.Fprintf(env.stderr, "created: key %s (%s) with the role %s. Keep it: it is not stored, and cannot be shown again.\n", key.Name, key.ID, key.Role)
			list, err := client.All(ctx, api, client.ListKeys, client.None{}, 0)
			if err == nil && len(list) == 1 {
				fmt.Fprintln(env.stderr, "warning: this is the first key: every request to the HTTP API needs a key now; agents without one get 401")
			}
			return err
		})(c)
	}
}

// endOf parses the expiry of a key: a duration from now, a date (its beginning, UTC), or a time.
func endOf(text string, now time.Time) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	if d, err := time.ParseDuration(text); err == nil {
		if d <= 0 {
			return time.Time{}, fmt.Errorf("--expires %s: must be positive", text)
		}
		return now.Add(d), nil
	}
	for _, layout := range []string{time.DateOnly, time.RFC3339} {
		if at, err := time.Parse(layout, text); err == nil {
			if !at.After(now) {
				return time.Time{}, fmt.Errorf("--expires %s: must be in the future", text)
			}
			return at, nil
		}
	}
	return time.Time{}, fmt.Errorf("--expires %.40q: use a duration such as 720h, or a date such as 2027-01-31", text)
}
