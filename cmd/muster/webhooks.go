package main

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	shown "muster/internal/webhook"
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
			{
				Name: "create", Usage: "create a webhook, and print the secret that signs its requests", ArgsUsage: "URL",
				Description: `The secret is printed once. An address that is not public must be in the setting
network.allow.

    muster webhooks create https://ops.example.org/muster
    muster webhooks create https://ops.example.org/muster --event job.failed`,
				Flags: []cli.Flag{
					&cli.StringFlag{Name: "name", Usage: "a unique `NAME`; the id by default"},
					&cli.StringFlag{Name: "format", Value: webhook.FormatJSON, Usage: "`FORMAT` of the body: " + strings.Join(webhook.Formats, ", ")},
					&cli.StringSliceFlag{Name: "event", Usage: "only events of `TYPE`, or with a prefix such as 'job.*'; may be repeated"},
					&cli.StringSliceFlag{Name: "workflow", Usage: "of the events 'workflow.*', only those of workflows called `NAME`, or with a prefix such as 'billing-*'; may be repeated"},
					labelFlag("of the events 'workflow.*', only those of workflows with the label `KEY=VALUE`; may be repeated"),
					serverFlag(), jsonFlag(),
				},
				Action: onAPI(env.creating(), 1, 1, func(ctx context.Context, c *cli.Context, api *client.Client) error {
					w, err := client.CreateWebhook.Call(ctx, api, client.With[client.NewWebhook]{Body: client.NewWebhook{Name: c.String("name"), URL: c.Args().First(), Events: c.StringSlice("event"), Workflows: c.StringSlice("workflow"), Labels: c.StringSlice("label"), Format: c.String("format")}})
					return showDone(env, c, w, err, "created: %s\nsecret, shown once: %s", w.Name, w.Secret)
				}),
			},
			{
				Name: "list", Usage: "list the webhooks, with their state",
				Description: "    muster webhooks list",
				Flags:       []cli.Flag{serverFlag(), jsonFlag()},
				Action: listAll(env, client.ListWebhooks, "No webhooks; create one with muster webhooks create URL",
					[]string{"WEBHOOK", "URL", "EVENTS", "STATE", "PENDING", "DELIVERED", "GIVEN UP", "LAST"}, webhookRow),
			},
			{
				Name: "get", Usage: "show a webhook and its deliveries, newest first", ArgsUsage: "WEBHOOK",
				Description: `    muster webhooks get ops
    muster webhooks get ops --state failed`,
				Flags: []cli.Flag{
					&cli.StringFlag{Name: "state", Usage: "only deliveries in `STATE`: " + strings.Join(webhook.DeliveryStates, ", ")},
					&cli.IntFlag{Name: "limit", Value: 50, Usage: "at most `N` deliveries, from 1 to 100000"},
					serverFlag(), jsonFlag(),
				},
				Action: getWebhook(env),
			},
			{
				Name: "delete", Usage: "delete a webhook; pending deliveries are dropped", ArgsUsage: "WEBHOOK",
				Description: "    muster webhooks delete ops",
				Flags:       []cli.Flag{serverFlag()},
				Action: onAPI(env, 1, 1, func(ctx context.Context, c *cli.Context, api *client.Client) error {
					return done(env, client.DeleteWebhook.Do(ctx, api, client.WebhookPath{ID: c.Args().First()}), "deleted: %s", c.Args().First())
				}),
			},
			{
				Name: "enable", Usage: "enable a disabled webhook", ArgsUsage: "WEBHOOK",
				Description: `A webhook that responds with 410 is disabled. Events from that time are not sent.

    muster webhooks enable ops`,
				Flags:  []cli.Flag{serverFlag(), jsonFlag()},
				Action: setDisabled(env, false),
			},
			{
				Name: "disable", Usage: "stop sending events to a webhook, and skip its pending deliveries", ArgsUsage: "WEBHOOK",
				Description: "    muster webhooks disable ops",
				Flags:       []cli.Flag{serverFlag(), jsonFlag()},
				Action:      setDisabled(env, true),
			},
			{
				Name: "send", Usage: "send a test event to a webhook, or resend a delivery that has ended", ArgsUsage: "WEBHOOK [DELIVERY]",
				Description: `A resent delivery keeps its ID.

    muster webhooks send ops
    muster webhooks send ops 1735689600000-0`,
				Flags: []cli.Flag{serverFlag(), jsonFlag()},
				Action: onAPI(env, 1, 2, func(ctx context.Context, c *cli.Context, api *client.Client) error {
					var d webhook.Delivery
					var err error
					if delivery := c.Args().Get(1); delivery != "" {
						d, err = client.Redeliver.Call(ctx, api, client.DeliveryChange{WebhookPath: client.WebhookPath{ID: c.Args().First()}, Delivery: delivery})
					} else {
						d, err = client.TestWebhook.Call(ctx, api, client.WebhookTest{WebhookPath: client.WebhookPath{ID: c.Args().First()}})
					}
					return showDone(env, c, d, err, "pending: %s; see muster webhooks get %s", d.ID, c.Args().First())
				}),
			},
		},
	}
}

func setDisabled(env environment, disabled bool) cli.ActionFunc {
	result := "enabled: %s"
	if disabled {
		result = "disabled: %s"
	}
	return onAPI(env, 1, 1, func(ctx context.Context, c *cli.Context, api *client.Client) error {
		w, err := client.EditWebhook.Call(ctx, api, client.WebhookChange{WebhookPath: client.WebhookPath{ID: c.Args().First()}, Body: client.WebhookEdit{Disabled: &disabled}})
		return showDone(env, c, w, err, result, w.Name)
	})
}

// webhookDeliveries is a webhook with its deliveries.
type webhookDeliveries struct {
	webhook.Endpoint
	Deliveries []webhook.Delivery `json:"deliveries"`
}

func getWebhook(env environment) cli.ActionFunc {
	return onAPI(env, 1, 1, func(ctx context.Context, c *cli.Context, api *client.Client) error {
		limit, err := within(c, "limit", 1, 100_000)
		if err != nil {
			return err
		}
		w, err := client.GetWebhook.Call(ctx, api, client.WebhookPath{ID: c.Args().First()})
		if err != nil {
			return err
		}
		list, err := client.All(ctx, api, client.ListDeliveries, client.DeliveryFilter{WebhookPath: client.WebhookPath{ID: w.ID}, State: c.String("state"), Limit: min(limit, 500)}, limit)
		if err != nil {
			return err
		}
		if c.Bool("json") {
			return printJSON(env.stdout, webhookDeliveries{w, list})
		}
		w.URL = shown.ShownURL(w.URL)
		if err := printFields(env.stdout, w); err != nil {
			return err
		}
		fmt.Fprintln(env.stdout)
		return showPage(env, c, list, "No deliveries found", []string{"DELIVERY", "EVENT", "STATE", "ATTEMPTS", "STATUS", "MS", "NEXT", "ERROR"}, deliveryRow)
	})
}

func webhookRow(w webhook.Endpoint) []string {
	return []string{w.Name, shown.ShownURL(w.URL), cmp.Or(strings.Join(w.Events, ","), "all"), w.State,
		fmt.Sprint(w.Pending), fmt.Sprint(w.Delivered), fmt.Sprint(w.GivenUp), age(w.LastDelivered)}
}

func deliveryRow(d webhook.Delivery) []string {
	status, next := "-", "-"
	if d.Status > 0 {
		status = fmt.Sprint(d.Status)
	}
	if !d.NextAttempt.IsZero() {
		next = max(time.Until(d.NextAttempt), 0).Round(time.Second).String()
	}
	return []string{d.ID, d.Type, d.State, fmt.Sprint(d.Attempts), status, fmt.Sprint(d.DurationMS), next, d.Error}
}
