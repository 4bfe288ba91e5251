package api

import (
	"context"
	"fmt"

	"muster/orchestrator/api/client"
	"muster/orchestrator/webhook"
)

type secretOutput struct {
	Location string `header:"Location" doc:"path of the webhook"`
	Body     client.WebhookSecret
}

// addWebhooks adds the operations on webhooks.
func addWebhooks(s *server) {
	hooks := s.cfg.Webhooks
	implement(s, client.ListWebhooks, func(ctx context.Context, _ *client.None) (client.Page[webhook.Endpoint], error) {
		return pageOf(hooks.List(ctx))
	})
	implementOutput(s, client.CreateWebhook, func(ctx context.Context, in *client.With[webhook.NewEndpoint]) (*secretOutput, error) {
		e, secret, err := hooks.Create(ctx, in.Body)
		return &secretOutput{"/v1/webhooks/" + e.ID, client.WebhookSecret{Endpoint: e, Secret: secret}}, err
	})
	implement(s, client.GetWebhook, func(ctx context.Context, in *client.WebhookPath) (webhook.Endpoint, error) {
		return findWebhook(ctx, hooks, in.ID)
	})
	implement(s, client.EditWebhook, func(ctx context.Context, in *client.WebhookChange) (webhook.Endpoint, error) {
		e, err := findWebhook(ctx, hooks, in.ID)
		if err == nil {
			e, err = hooks.Edit(ctx, e.ID, in.Body)
		}
		return e, err
	})
	implementNone(s, client.DeleteWebhook, func(ctx context.Context, in *client.WebhookPath) error {
		e, err := findWebhook(ctx, hooks, in.ID)
		if err == nil {
			err = hooks.Remove(ctx, e.ID)
		}
		return err
	})
	addDeliveries(s)
}

// findWebhook returns the webhook with an id or a name.
func findWebhook(ctx context.Context, hooks *webhook.Service, name string) (webhook.Endpoint, error) {
	list, err := hooks.List(ctx)
	if err != nil {
		return webhook.Endpoint{}, err
	}
	for _, e := range list {
		if e.ID == name || e.Name == name {
			return e, nil
		}
	}
	return webhook.Endpoint{}, fmt.Errorf("%w: %s", webhook.ErrNoEndpoint, name)
}

// addDeliveries adds the operations on deliveries to webhooks.
func addDeliveries(s *server) {
	hooks := s.cfg.Webhooks
	implement(s, client.ListDeliveries, func(ctx context.Context, in *client.DeliveryFilter) (out client.Page[webhook.Delivery], err error) {
		e, err := findWebhook(ctx, hooks, in.ID)
		if err != nil {
			return out, err
		}
		page, err := hooks.Deliveries(ctx, e.ID, webhook.DeliveryFilter{State: in.State, Limit: in.Limit, Cursor: in.Cursor})
		return client.Page[webhook.Delivery]{Data: orEmpty(page.Deliveries), Next: page.Next}, err
	})
	implement(s, client.Redeliver, func(ctx context.Context, in *client.DeliveryChange) (out webhook.Delivery, err error) {
		e, err := findWebhook(ctx, hooks, in.ID)
		if err != nil {
			return out, err
		}
		return hooks.Redeliver(ctx, e.ID, in.Delivery)
	})
	implement(s, client.TestWebhook, func(ctx context.Context, in *client.WebhookTest) (out webhook.Delivery, err error) {
		e, err := findWebhook(ctx, hooks, in.ID)
		if err != nil {
			return out, err
		}
		return hooks.Test(ctx, e.ID)
	})
}
