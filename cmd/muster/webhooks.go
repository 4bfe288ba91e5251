package main

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	shown "muster/internal/webhook"
	"muster/orchestrator/access"
	"muster/orchestrator/api/client"
	"muster/orchestrator/webhook"
)

func webhooksCommand(env environment) *cli.Command {
	return &cli.Command{
		Name:  "webhooks",
		Usage: "send events of jobs, sites, agents and workflows to URLs",
		Description: `muster start sends each event to the webhooks that want it, signed, until it is
acknowledged, for a day. WEBHOOK is a name or an id.

    muster webhooks create https://ops.example.org/muster --name ops --event 'job.*'
    muster webhooks get ops`,
		Subcommands: []*cli.Command{
			act(env.creating(), &cli.Command{
				Name: "create", Usage: "create a webhook, and print the secret that signs its requests", ArgsUsage: "URL",
				Description: `The secret is printed once. An address that is not public must be in the setting
network.allow.

    muster webhooks create https://ops.example.org/muster
    muster webhooks create https://ops.example.org/muster --event job.failed`,
			}, client.CreateWebhook, func(_ client.With[webhook.NewEndpoint], w client.WebhookSecret) string {
				return fmt.Sprintf("created: %s\nsecret, shown once: %s", w.Name, w.Secret)
			}),
			list(env, &cli.Command{Name: "list", Usage: "list the webhooks, with their state"}, client.ListWebhooks,
				"No webhooks; create one with muster webhooks create URL", "WEBHOOK URL EVENTS STATE PENDING DELIVERED GIVEN_UP LAST",
				func(w webhook.Endpoint) []any {
					return []any{w.Name, shown.ShownURL(w.URL), cmp.Or(strings.Join(w.Events, ","), "all"), w.State, w.Pending, w.Delivered, w.GivenUp, w.LastDelivered}
				}),
			apiCommand(env, &cli.Command{
				Name: "get", Usage: "show a webhook and its deliveries, newest first", ArgsUsage: "WEBHOOK", Flags: []cli.Flag{jsonFlag()},
			}, getWebhook),
			act(env, &cli.Command{Name: "delete", Usage: "delete a webhook; pending deliveries are dropped", ArgsUsage: "WEBHOOK"},
				client.DeleteWebhook, func(in client.WebhookPath, _ client.None) string { return "deleted: " + in.ID }),
			apiCommand(env, &cli.Command{
				Name: "send", Usage: "send a test event to a webhook, or resend a delivery that has ended", ArgsUsage: "WEBHOOK [DELIVERY]",
				Description: "A resent delivery keeps its ID.", Flags: []cli.Flag{jsonFlag()},
			}, func(s scope, in client.DeliveryChange) (err error) {
				var d webhook.Delivery
				if in.Delivery != "" {
					d, err = client.Redeliver.Call(s.ctx, s.api, in)
				} else {
					d, err = client.TestWebhook.Call(s.ctx, s.api, client.WebhookTest{WebhookPath: in.WebhookPath})
				}
				return showDone(s, d, err, "pending: %s; see muster webhooks get %s", d.ID, in.ID)
			}),
		},
	}
}

// webhookDeliveries is a webhook with its deliveries.
type webhookDeliveries struct {
	webhook.Endpoint
	Deliveries []webhook.Delivery `json:"deliveries"`
}

func getWebhook(s scope, in client.DeliveryFilter) error {
	w, err := client.GetWebhook.Call(s.ctx, s.api, in.WebhookPath)
	if err != nil {
		return err
	}
	list, err := client.All(s.ctx, s.api, client.ListDeliveries, in, s.Int("limit"))
	if err != nil {
		return err
	}
	if s.Bool("json") {
		return printJSON(s.env.stdout, webhookDeliveries{w, list})
	}
	w.URL = shown.ShownURL(w.URL)
	if err := printFields(s.env.stdout, w); err != nil {
		return err
	}
	fmt.Fprintln(s.env.stdout)
	return showPage(s, list, "No deliveries found", "DELIVERY EVENT STATE ATTEMPTS STATUS MS NEXT ERROR", func(d webhook.Delivery) []any {
		status := ""
		if d.Status > 0 {
			status = fmt.Sprint(d.Status)
		}
		return []any{d.ID, d.Type, d.State, d.Attempts, status, d.DurationMS, until(d.NextAttempt), d.Error}
	})
}

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

func auditCommand(env environment) *cli.Command {
	return list(env, &cli.Command{
		Name:  "audit",
		Usage: "list changes made through the HTTP API, newest first",
		Description: `The log contains each mutating request with its caller and status, also
requests of commands. The work of agents is in the events of jobs instead. Muster keeps the last 100,000 entries.`,
	}, client.ListAudit, "No changes found", "TIME CALLER ROLE OPERATION PATH STATUS ADDRESS", func(e access.Entry) []any {
		path, status := cmp.Or(e.Path, "-"), ""
		if e.Created != "" {
			path += ", created " + e.Created
		}
		if e.Status != 0 {
			status = fmt.Sprint(e.Status)
		}
		return []any{e.Time.Format(time.DateTime), e.Caller, e.Role, e.Operation, path, status, e.Address}
	})
}
