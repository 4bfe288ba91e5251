package main

import (
	"cmp"
	"fmt"
	"strings"

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
			act(env.creating(), &cli.Command{
				Name: "create", Usage: "create a webhook, and print the secret that signs its requests", ArgsUsage: "URL",
				Description: `The secret is printed once. An address that is not public must be in the setting
network.allow.

    muster webhooks create https://ops.example.org/muster
    muster webhooks create https://ops.example.org/muster --event job.failed`,
			}, client.CreateWebhook, func(_ client.With[client.NewWebhook], w client.WebhookSecret) string {
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
			setDisabled(env, &cli.Command{
				Name: "enable", Usage: "enable a disabled webhook", ArgsUsage: "WEBHOOK",
				Description: "A webhook that responds with 410 is disabled. Events from that time are not sent.",
			}, false),
			setDisabled(env, &cli.Command{Name: "disable", Usage: "stop sending events to a webhook, and skip its pending deliveries", ArgsUsage: "WEBHOOK"}, true),
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

// setDisabled makes c a command that disables or enables a webhook.
func setDisabled(env environment, c *cli.Command, disabled bool) *cli.Command {
	c.Flags = []cli.Flag{jsonFlag()}
	return apiCommand(env, c, func(s scope, in client.WebhookPath) error {
		w, err := client.EditWebhook.Call(s.ctx, s.api, client.WebhookChange{WebhookPath: in, Body: client.WebhookEdit{Disabled: &disabled}})
		return showDone(s, w, err, "%sd: %s", c.Name, w.Name)
	})
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
