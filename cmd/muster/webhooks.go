package main

import (
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
		Usage: "send events of jobs, sites and agents to URLs",
		Description: `muster start sends each event to the webhooks that want it, signed, until it is
acknowledged, for a day. WEBHOOK is a name or an id.

    muster webhooks create https://ops.example.org/muster --name ops --event 'job.*'
    muster webhooks deliveries ops`,
		Subcommands: append([]*cli.Command{
			{
				Name: "create", Usage: "create a webhook, and print the secret that signs its requests", ArgsUsage: "URL",
				Description: `The secret is printed once. An address that is not public must be in the setting
network.allow.

    muster webhooks create https://ops.example.org/muster
    muster webhooks create https://ops.example.org/muster --event job.failed`,
				Flags: []cli.Flag{
					&cli.StringFlag{Name: "name", Usage: "a unique `NAME`; the id by default"},
					&cli.StringSliceFlag{Name: "event", Usage: "a `TYPE` of event, or a prefix as in 'job.*'; again for more; all by default"},
					serverFlag(), jsonFlag(),
				},
				Action: onAPI(env.creating(), 1, 1, func(ctx context.Context, c *cli.Context, api *client.Client) error {
					w, err := api.CreateWebhook(ctx, client.NewWebhook{Name: c.String("name"), URL: c.Args().First(), Events: c.StringSlice("event")})
					return printSecret(env, c, w, err, "created")
				}),
			},
			{
				Name: "list", Usage: "list the webhooks, with their state",
				Description: "    muster webhooks list",
				Flags:       []cli.Flag{serverFlag(), watchFlag(), jsonFlag()},
				Action: onAPI(env, 0, 0, func(ctx context.Context, c *cli.Context, api *client.Client) error {
					list, err := api.Webhooks(ctx)
					if err != nil {
						return err
					}
					return showPage(env, c, list, "No webhooks; create one with muster webhooks create URL",
						[]string{"WEBHOOK", "URL", "EVENTS", "STATE", "PENDING", "DELIVERED", "GIVEN UP", "LAST"}, webhookRow)
				}),
			},
			{
				Name: "get", Usage: "show a webhook", ArgsUsage: "WEBHOOK",
				Description: "    muster webhooks get ops",
				Flags:       []cli.Flag{serverFlag(), jsonFlag()},
				Action: onAPI(env, 1, 1, func(ctx context.Context, c *cli.Context, api *client.Client) error {
					w, err := api.Webhook(ctx, c.Args().First())
					if err != nil {
						return err
					}
					if c.Bool("json") {
						return printJSON(env.stdout, w)
					}
					printWebhook(env, w)
					return nil
				}),
			},
			{
				Name: "delete", Usage: "delete a webhook; pending deliveries are dropped", ArgsUsage: "WEBHOOK",
				Description: "    muster webhooks delete ops",
				Flags:       []cli.Flag{serverFlag()},
				Action: onAPI(env, 1, 1, func(ctx context.Context, c *cli.Context, api *client.Client) error {
					return done(env, api.DeleteWebhook(ctx, c.Args().First()), "deleted: %s", c.Args().First())
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
				Name: "rotate", Usage: "give a webhook a new secret, and print it", ArgsUsage: "WEBHOOK",
				Description: `Requests are signed with both secrets until the old one ends.

    muster webhooks rotate ops --keep 48h`,
				Flags: []cli.Flag{
					&cli.DurationFlag{Name: "keep", Value: 24 * time.Hour, Usage: "sign with the old secret too for `DURATION`; 0s ends it at once"},
					serverFlag(), jsonFlag(),
				},
				Action: onAPI(env, 1, 1, func(ctx context.Context, c *cli.Context, api *client.Client) error {
					w, err := api.RotateWebhookSecret(ctx, c.Args().First(), client.SecretRotation{Keep: c.Duration("keep").String()})
					return printSecret(env, c, w, err, "rotated")
				}),
			},
		}, deliveryCommands(env)...),
	}
}

func deliveryCommands(env environment) []*cli.Command {
	return []*cli.Command{
		{
			Name: "deliveries", Usage: "list the deliveries to a webhook, the newest first", ArgsUsage: "WEBHOOK",
			Description: "    muster webhooks deliveries ops --state failed",
			Flags: []cli.Flag{
				&cli.StringFlag{Name: "state", Usage: "only deliveries that are `STATE`: " + strings.Join(webhook.DeliveryStates, ", ")},
				&cli.IntFlag{Name: "limit", Value: 50, Usage: "at most `N`, up to 100000"},
				serverFlag(), watchFlag(), jsonFlag(),
			},
			Action: onAPI(env, 1, 1, func(ctx context.Context, c *cli.Context, api *client.Client) error {
				limit, err := within(c, "limit", 1, 100_000)
				if err != nil {
					return err
				}
				list, err := api.Deliveries(ctx, c.Args().First(), client.DeliveryFilter{State: c.String("state"), Limit: limit})
				if err != nil {
					return err
				}
				return showPage(env, c, list, "No deliveries found", []string{"DELIVERY", "EVENT", "STATE", "ATTEMPTS", "STATUS", "MS", "NEXT", "ERROR"}, deliveryRow)
			}),
		},
		{
			Name: "send", Usage: "send a test event to a webhook, or a delivery that has ended again", ArgsUsage: "WEBHOOK [DELIVERY]",
			Description: `A delivery keeps its id.

    muster webhooks send ops
    muster webhooks send ops 1735689600000-0`,
			Flags: []cli.Flag{serverFlag(), jsonFlag()},
			Action: onAPI(env, 1, 2, func(ctx context.Context, c *cli.Context, api *client.Client) error {
				var d webhook.Delivery
				var err error
				if delivery := c.Args().Get(1); delivery != "" {
					d, err = api.Redeliver(ctx, c.Args().First(), delivery)
				} else {
					d, err = api.TestWebhook(ctx, c.Args().First())
				}
				switch {
				case err != nil:
					return err
				case c.Bool("json"):
					return printJSON(env.stdout, d)
				}
				return done(env, nil, "pending: %s; see muster webhooks deliveries %s", d.ID, c.Args().First())
			}),
		},
	}
}

func setDisabled(env environment, disabled bool) cli.ActionFunc {
	return onAPI(env, 1, 1, func(ctx context.Context, c *cli.Context, api *client.Client) error {
		w, err := api.EditWebhook(ctx, c.Args().First(), client.WebhookEdit{Disabled: &disabled})
		switch {
		case err != nil:
			return err
		case c.Bool("json"):
			return printJSON(env.stdout, w)
		case disabled:
			fmt.Fprintf(env.stdout, "disabled: %s\n", w.Name)
		default:
			fmt.Fprintf(env.stdout, "enabled: %s\n", w.Name)
		}
		return nil
	})
}

func printSecret(env environment, c *cli.Context, w client.WebhookSecret, err error, verb string) error {
	switch {
	case err != nil:
		return err
	case c.Bool("json"):
		return printJSON(env.stdout, w)
	}
	fmt.Fprintf(env.stdout, "%s: %s\n", verb, w.Name)
	fmt.Fprintf(env.stdout, "secret, shown once: %s\n", w.Secret)
	return nil
}

func webhookRow(w webhook.Endpoint) []string {
	return []string{w.Name, shown.ShownURL(w.URL), eventsOf(w), w.State,
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

func eventsOf(e webhook.Endpoint) string {
	if len(e.Events) == 0 {
		return "all"
	}
	return strings.Join(e.Events, ",")
}

func printWebhook(env environment, e webhook.Endpoint) {
	line := func(name, value string) {
		if value != "" {
			fmt.Fprintf(env.stdout, "%-14s %s\n", name, value)
		}
	}
	at := func(name string, t time.Time) {
		if !t.IsZero() {
			line(name, t.Format(time.RFC3339))
		}
	}
	line("webhook", e.ID)
	line("name", e.Name)
	line("url", shown.ShownURL(e.URL))
	line("events", eventsOf(e))
	line("state", e.State)
	line("reason", e.Reason)
	if e.Static {
		line("from", "the configuration")
	}
	line("pending", fmt.Sprint(e.Pending))
	line("delivered", fmt.Sprint(e.Delivered))
	line("given up", fmt.Sprint(e.GivenUp))
	at("created", e.Created)
	at("old secret", e.OldSecretUntil)
	at("last delivered", e.LastDelivered)
	at("failing since", e.FailingSince)
	at("last failure", e.LastFailure)
	line("last error", cell(e.LastError, 300))
}
