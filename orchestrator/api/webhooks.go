package api

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"muster/orchestrator/access"
	"muster/orchestrator/api/client"
	"muster/orchestrator/webhook"
)

// WebhookPath is the path of a webhook.
type WebhookPath struct {
	ID string `path:"id" maxLength:"100" pattern:"^[A-Za-z0-9][A-Za-z0-9._-]*$" patternDescription:"the id or the name of a webhook" doc:"id or name of the webhook" example:"wh-5c9d1f6e1f0b4d77"`
}

type editWebhookInput struct {
	WebhookPath
	Body client.WebhookEdit
}

type rotateInput struct {
	WebhookPath
	Body *client.SecretRotation
}

type secretOutput struct {
	Location string `header:"Location" doc:"path of the webhook"`
	Body     client.WebhookSecret
}

type deliveriesInput struct {
	WebhookPath
	State  string `query:"state" enum:"pending,sending,delivered,failed,skipped" doc:"Defaults to all."`
	Limit  int    `query:"limit" minimum:"1" maximum:"500" default:"50" doc:"deliveries on a page"`
	Cursor string `query:"cursor" maxLength:"100" doc:"next of the previous page"`
}

type deliveryInput struct {
	WebhookPath
	Delivery string    `path:"delivery" maxLength:"100" pattern:"^[A-Za-z0-9-]+$" patternDescription:"the id of a delivery" doc:"id of the delivery" example:"1735689600000-0"`
	Body     *struct{} `nameHint:"Redelivery"`
}

type testInput struct {
	WebhookPath
	Body *struct{} `nameHint:"WebhookTest"`
}

// Limits of the time for which an old secret stays valid.
const (
	defaultOverlap = 24 * time.Hour
	maxOverlap     = 720 * time.Hour
)

// addWebhooks adds the operations on webhooks. They require the role admin, because the creator of a webhook can read
// all events.
func addWebhooks(s *server) {
	hooks := s.cfg.Webhooks
	op := describe(s, http.MethodGet, "/v1/webhooks", "listWebhooks", tagWebhooks, "List the webhooks")
	needs(&op, access.Admin)
	route(s, op, 0, body(func(ctx context.Context, _ *nothing) (client.Page[webhook.Endpoint], error) {
		return pageOf(hooks.List(ctx))
	}))
	op = describe(s, http.MethodPost, "/v1/webhooks", "createWebhook", tagWebhooks, "Create a webhook", http.StatusConflict)
	needs(&op, access.Admin)
	op.DefaultStatus = http.StatusCreated
	route(s, op, maxBody, func(ctx context.Context, in *request[client.NewWebhook]) (*secretOutput, error) {
		e, secret, err := hooks.Create(ctx, webhook.NewEndpoint{Name: in.Body.Name, URL: in.Body.URL, Events: in.Body.Events})
		return &secretOutput{"/v1/webhooks/" + e.ID, client.WebhookSecret{Endpoint: e, Secret: secret}}, err
	})
	op = describe(s, http.MethodGet, "/v1/webhooks/{id}", "getWebhook", tagWebhooks, "Get a webhook", http.StatusNotFound)
	needs(&op, access.Admin)
	route(s, op, 0, body(func(ctx context.Context, in *WebhookPath) (webhook.Endpoint, error) {
		return findWebhook(ctx, hooks, in.ID)
	}))
	op = describe(s, http.MethodPatch, "/v1/webhooks/{id}", "editWebhook", tagWebhooks, "Change, disable or enable a webhook", http.StatusNotFound, http.StatusConflict)
	needs(&op, access.Admin)
	route(s, op, maxBody, body(func(ctx context.Context, in *editWebhookInput) (webhook.Endpoint, error) {
		e, err := findWebhook(ctx, hooks, in.ID)
		if err == nil {
			e, err = hooks.Edit(ctx, e.ID, webhook.Edit{URL: in.Body.URL, Events: in.Body.Events, Disabled: in.Body.Disabled})
		}
		return e, err
	}))
	op = describe(s, http.MethodDelete, "/v1/webhooks/{id}", "deleteWebhook", tagWebhooks, "Delete a webhook; its waiting deliveries are not sent", http.StatusNotFound, http.StatusConflict)
	needs(&op, access.Admin)
	route(s, op, 0, func(ctx context.Context, in *WebhookPath) (*nothing, error) {
		e, err := findWebhook(ctx, hooks, in.ID)
		if err == nil {
			err = hooks.Remove(ctx, e.ID)
		}
		return nil, err
	})
	op = describe(s, http.MethodPost, "/v1/webhooks/{id}/rotate", "rotateWebhookSecret", tagWebhooks, "Give a webhook a new secret", http.StatusNotFound, http.StatusConflict)
	needs(&op, access.Admin)
	route(s, op, maxBody, func(ctx context.Context, in *rotateInput) (*secretOutput, error) {
		keep := defaultOverlap
		if in.Body != nil && in.Body.Keep != "" {
			var err error
			if keep, err = time.ParseDuration(in.Body.Keep); err != nil || keep < 0 || keep > maxOverlap {
				return nil, badField("body.keep", "use a duration from 0s to %v", maxOverlap)
			}
		}
		e, err := findWebhook(ctx, hooks, in.ID)
		if err != nil {
			return nil, err
		}
		e, secret, err := hooks.Rotate(ctx, e.ID, keep)
		return &secretOutput{"/v1/webhooks/" + e.ID, client.WebhookSecret{Endpoint: e, Secret: secret}}, err
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
	op := describe(s, http.MethodGet, "/v1/webhooks/{id}/deliveries", "listDeliveries", tagWebhooks, "List the deliveries to a webhook, the newest first", http.StatusNotFound)
	needs(&op, access.Admin)
	route(s, op, 0, body(func(ctx context.Context, in *deliveriesInput) (out client.Page[webhook.Delivery], err error) {
		e, err := findWebhook(ctx, hooks, in.ID)
		if err != nil {
			return out, err
		}
		page, err := hooks.Deliveries(ctx, e.ID, webhook.DeliveryFilter{State: in.State, Limit: in.Limit, Cursor: in.Cursor})
		return client.Page[webhook.Delivery]{Data: orEmpty(page.Deliveries), Next: page.Next}, err
	}))
	op = describe(s, http.MethodPost, "/v1/webhooks/{id}/deliveries/{delivery}/redeliver", "redeliver", tagWebhooks, "Send a delivery that has ended again, with the same id", http.StatusNotFound, http.StatusConflict)
	needs(&op, access.Admin)
	route(s, op, maxBody, body(func(ctx context.Context, in *deliveryInput) (out webhook.Delivery, err error) {
		e, err := findWebhook(ctx, hooks, in.ID)
		if err != nil {
			return out, err
		}
		return hooks.Redeliver(ctx, e.ID, in.Delivery)
	}))
	op = describe(s, http.MethodPost, "/v1/webhooks/{id}/test", "testWebhook", tagWebhooks, "Send an event of the type webhook.test to a webhook", http.StatusNotFound, http.StatusConflict)
	needs(&op, access.Admin)
	route(s, op, maxBody, body(func(ctx context.Context, in *testInput) (out webhook.Delivery, err error) {
		e, err := findWebhook(ctx, hooks, in.ID)
		if err != nil {
			return out, err
		}
		return hooks.Test(ctx, e.ID)
	}))
}
