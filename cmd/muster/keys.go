package main

import (
	"fmt"
	"time"

	"github.com/urfave/cli/v2"

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
			apiCommand(env.creating(), &cli.Command{
				Name: "create", Usage: "create a key and print it",
				Description: `The key is the only line on standard output. It is not stored, and cannot be
shown again.

    muster keys create --name creator --role agent --agent-role creator > creator.key`,
				Flags: []cli.Flag{jsonFlag()},
			}, createKey),
			list(env, &cli.Command{Name: "list", Usage: "list all keys, including revoked and expired ones"}, client.ListKeys,
				"No keys found", "ID NAME ROLE STATE CREATED EXPIRES USED", func(k client.Key) []any {
					expires := "never"
					if !k.Expires.IsZero() {
						expires = k.Expires.Format(time.RFC3339)
					}
					return []any{k.ID, k.Name, k.Role, k.State, k.Created, expires, k.Used}
				}),
			act(env, &cli.Command{Name: "revoke", Usage: "revoke a key; within two seconds no process accepts it", ArgsUsage: "ID|NAME"},
				client.RevokeKey, func(_ client.KeyPath, k client.Key) string { return fmt.Sprintf("revoked: key %s (%s)", k.Name, k.ID) }),
		},
	}
}

func createKey(s scope, in client.With[client.NewKey]) error {
	key, err := client.CreateKey.Call(s.ctx, s.api, in)
	if err != nil || s.Bool("json") {
		return showDone(s, key, err, "")
	}
	fmt.Fprintln(s.env.stdout, key.Secret)
	fmt.Fprintf(s.env.stderr, "created: key %s (%s) with the role %s. Keep it: it is not stored, and cannot be shown again.\n", key.Name, key.ID, key.Role)
	list, err := client.All(s.ctx, s.api, client.ListKeys, client.None{}, 0)
	if err == nil && len(list) == 1 {
		fmt.Fprintln(s.env.stderr, "warning: this is the first key: every request to the HTTP API needs a key now; agents without one get 401")
	}
	return err
}
