package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	shown "muster/internal/webhook"
	"muster/orchestrator"
	"muster/orchestrator/monitor"
	"muster/orchestrator/webhook"
)

func webhooksCommand(env environment) *cli.Command {
	return &cli.Command{
		Name:  "webhooks",
		Usage: "send events of jobs, sites and agents to URLs",
		Description: `muster start sends each event to the webhooks that want it, signed, until it is
acknowledged, for a day. WEBHOOK is a name or an id.

    muster webhooks add https://ops.example.org/muster --name ops --event 'job.*'
    muster webhooks deliveries ops`,
		Subcommands: append([]*cli.Command{
			{
				Name: "add", Usage: "add a webhook, and print the secret that signs its requests", ArgsUsage: "URL",
				Description: `The secret is printed once. An address that is not public must be in the setting
network.allow.

    muster webhooks add https://ops.example.org/muster
    muster webhooks add https://ops.example.org/muster --event job.failed --event 'site.*'`,
				Flags: []cli.Flag{
					&cli.StringFlag{Name: "name", Usage: "a unique `NAME`; the id by default"},
					&cli.StringSliceFlag{Name: "event", Usage: "a `TYPE` of event, or a beginning as in 'job.*'; again for more; all by default"},
					progressFlag(), jsonFlag(),
				},
				Action: onWebhooks(env.creating(), 1, 1, addWebhook),
			},
			{
				Name: "list", Usage: "list the webhooks, with their state",
				Description: "    muster webhooks list",
				Flags:       []cli.Flag{progressFlag(), watchFlag(), jsonFlag()},
				Action:      onWebhooks(env, 0, 0, listWebhooks),
			},
			{
				Name: "show", Usage: "show a webhook", ArgsUsage: "WEBHOOK",
				Description: "    muster webhooks show ops",
				Flags:       []cli.Flag{progressFlag(), jsonFlag()},
				Action:      onWebhooks(env, 1, 1, showWebhook),
			},
			{
				Name: "remove", Usage: "remove a webhook; pending deliveries are dropped", ArgsUsage: "WEBHOOK",
				Description: "    muster webhooks remove ops",
				Flags:       []cli.Flag{progressFlag()},
				Action:      onWebhooks(env, 1, 1, removeWebhook),
			},
			{
				Name: "enable", Usage: "enable a disabled webhook, or disable it with --undo", ArgsUsage: "WEBHOOK",
				Description: `A webhook that responds with 410 is disabled. Events from that time are not sent.

    muster webhooks enable ops
    muster webhooks enable ops --undo`,
				Flags:  []cli.Flag{&cli.BoolFlag{Name: "undo", Usage: "disable it"}, progressFlag()},
				Action: onWebhooks(env, 1, 1, enableWebhook),
			},
			{
				Name: "rotate", Usage: "give a webhook a new secret, and print it", ArgsUsage: "WEBHOOK",
				Description: `Requests are signed with both secrets until the old one ends.

    muster webhooks rotate ops --keep 48h`,
				Flags: []cli.Flag{
					&cli.DurationFlag{Name: "keep", Value: 24 * time.Hour, Usage: "sign with the old secret too for so `LONG`; 0s ends it at once"},
					progressFlag(), jsonFlag(),
				},
				Action: onWebhooks(env, 1, 1, rotateWebhook),
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
				&cli.IntFlag{Name: "limit", Value: 50, Usage: "at most `N`, up to 500"},
				progressFlag(), watchFlag(), jsonFlag(),
			},
			Action: onWebhooks(env, 1, 1, listDeliveries),
		},
		{
			Name: "redeliver", Usage: "send a delivery that has ended again, with the same id", ArgsUsage: "WEBHOOK DELIVERY",
			Description: "    muster webhooks redeliver ops 1735689600000-0",
			Flags:       []cli.Flag{progressFlag()},
			Action:      onWebhooks(env, 2, 2, redeliver),
		},
		{
			Name: "test", Usage: "send an event of the type webhook.test to a webhook", ArgsUsage: "WEBHOOK",
			Description: `It does not wait for the response.

    muster webhooks test ops`,
			Flags:  []cli.Flag{progressFlag()},
			Action: onWebhooks(env, 1, 1, testWebhook),
		},
	}
}

// onWebhooks is the action of a command on webhooks.
func onWebhooks(env environment, least, most int, fn func(context.Context, *cli.Context, environment, *webhook.Service) error) cli.ActionFunc {
	return func(c *cli.Context) error {
		return withJobs(env, c, least, most, func(ctx context.Context, o *orchestrator.Orchestrator, _ *monitor.Display) error {
			return wrongField(fn(ctx, c, env, o.Webhooks))
		})
	}
}

// findWebhook returns the webhook of an id or a name.
func findWebhook(ctx context.Context, hooks *webhook.Service, name string) (webhook.Endpoint, error) {
	list, err := hooks.List(ctx)
	if err != nil {
		return webhook.Endpoint{}, err
	}
	var names []string
	for _, e := range list {
		if e.ID == name || e.Name == name {
			return e, nil
		}
		names = append(names, e.Name)
	}
	return webhook.Endpoint{}, fmt.Errorf("no webhook %q%s; see muster webhooks list", cell(name, 100), suggest(name, names))
}

// withSecret is a webhook with a secret that is shown once.
type withSecret struct {
	Secret  string           `json:"secret"`
	Webhook webhook.Endpoint `json:"webhook"`
}

func printSecret(c *cli.Context, env environment, e webhook.Endpoint, secret, did string) error {
	if c.Bool("json") {
		return printJSON(env.stdout, withSecret{secret, e})
	}
	fmt.Fprintf(env.stdout, "%s: %s\n", did, e.Name)
	fmt.Fprintf(env.stdout, "secret, shown once: %s\n", secret)
	return nil
}

func addWebhook(ctx context.Context, c *cli.Context, env environment, hooks *webhook.Service) error {
	e, secret, err := hooks.Create(ctx, webhook.NewEndpoint{Name: c.String("name"), URL: c.Args().First(), Events: c.StringSlice("event")})
	if err != nil {
		return err
	}
	return printSecret(c, env, e, secret, "added")
}

func rotateWebhook(ctx context.Context, c *cli.Context, env environment, hooks *webhook.Service) error {
	e, err := findWebhook(ctx, hooks, c.Args().First())
	if err != nil {
		return err
	}
	e, secret, err := hooks.Rotate(ctx, e.ID, c.Duration("keep"))
	if err != nil {
		return err
	}
	return printSecret(c, env, e, secret, "rotated")
}

func listWebhooks(ctx context.Context, c *cli.Context, env environment, hooks *webhook.Service) error {
	list, err := hooks.List(ctx)
	if err != nil {
		return err
	}
	if len(list) == 0 && !c.Bool("json") {
		fmt.Fprintln(env.stdout, "No webhooks; add one with muster webhooks add URL")
		return nil
	}
	return show(env, c, list, []string{"WEBHOOK", "URL", "EVENTS", "STATE", "PENDING", "DELIVERED", "GIVEN UP", "LAST"}, func(e webhook.Endpoint) []string {
		return []string{e.Name, shown.ShownURL(e.URL), eventsOf(e), e.State,
			fmt.Sprint(e.Pending), fmt.Sprint(e.Delivered), fmt.Sprint(e.GivenUp), age(e.LastDelivered)}
	})
}

func eventsOf(e webhook.Endpoint) string {
	if len(e.Events) == 0 {
		return "all"
	}
	return strings.Join(e.Events, ",")
}

func showWebhook(ctx context.Context, c *cli.Context, env environment, hooks *webhook.Service) error {
	e, err := findWebhook(ctx, hooks, c.Args().First())
	if err != nil {
		return err
	}
	if c.Bool("json") {
		return printJSON(env.stdout, e)
	}
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
	return nil
}

func removeWebhook(ctx context.Context, c *cli.Context, env environment, hooks *webhook.Service) error {
	e, err := findWebhook(ctx, hooks, c.Args().First())
	if err != nil {
		return err
	}
	if err := hooks.Remove(ctx, e.ID); !errors.Is(err, webhook.ErrNoEndpoint) { // gone meanwhile
		return done(env, err, "removed: %s", e.Name)
	}
	return nil
}

func enableWebhook(ctx context.Context, c *cli.Context, env environment, hooks *webhook.Service) error {
	e, err := findWebhook(ctx, hooks, c.Args().First())
	if err != nil {
		return err
	}
	off := c.Bool("undo")
	_, err = hooks.Edit(ctx, e.ID, webhook.Edit{Disabled: &off})
	if off {
		return done(env, err, "disabled: %s", e.Name)
	}
	return done(env, err, "enabled: %s", e.Name)
}

func listDeliveries(ctx context.Context, c *cli.Context, env environment, hooks *webhook.Service) error {
	e, err := findWebhook(ctx, hooks, c.Args().First())
	if err != nil {
		return err
	}
	if n := c.Int("limit"); n < 1 || n > 500 {
		return usageError{fmt.Errorf("--limit %d: use 1 to 500", n)}
	}
	page, err := hooks.Deliveries(ctx, e.ID, webhook.DeliveryFilter{State: c.String("state"), Limit: c.Int("limit")})
	if err != nil {
		return err
	}
	if len(page.Deliveries) == 0 && !c.Bool("json") {
		fmt.Fprintln(env.stdout, "No deliveries found")
		return nil
	}
	return show(env, c, page.Deliveries, []string{"DELIVERY", "EVENT", "STATE", "ATTEMPTS", "STATUS", "MS", "NEXT", "ERROR"}, func(d webhook.Delivery) []string {
		status, next := "-", "-"
		if d.Status > 0 {
			status = fmt.Sprint(d.Status)
		}
		if !d.NextAttempt.IsZero() {
			next = max(time.Until(d.NextAttempt), 0).Round(time.Second).String()
		}
		return []string{d.ID, d.Type, d.State, fmt.Sprint(d.Attempts), status, fmt.Sprint(d.DurationMS), next, d.Error}
	})
}

func redeliver(ctx context.Context, c *cli.Context, env environment, hooks *webhook.Service) error {
	e, err := findWebhook(ctx, hooks, c.Args().First())
	if err != nil {
		return err
	}
	_, err = hooks.Redeliver(ctx, e.ID, c.Args().Get(1))
	return done(env, err, "is sent again to %s: %s", e.Name, c.Args().Get(1))
}

func testWebhook(ctx context.Context, c *cli.Context, env environment, hooks *webhook.Service) error {
	e, err := findWebhook(ctx, hooks, c.Args().First())
	if err != nil {
		return err
	}
	d, err := hooks.Test(ctx, e.ID)
	return done(env, err, "is sent to %s: %s; see muster webhooks deliveries %s", e.Name, d.ID, e.Name)
}
