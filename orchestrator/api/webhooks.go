package api

import (
	"context"
	"net/http"
	"time"

	"muster/orchestrator/access"
	"muster/orchestrator/webhook"
)

// NewWebhook is a webhook to create.
type NewWebhook struct {
	Name   string   `json:"name,omitempty" maxLength:"100" pattern:"^[A-Za-z0-9][A-Za-z0-9._-]*$" doc:"unique. Defaults to the id." example:"ops"`
	URL    string   `json:"url" maxLength:"2000" pattern:"^https?://" doc:"that events are posted to. Its address must be public, or in the setting network.allow." example:"https://ops.example.org/muster"`
	Events []string `json:"events,omitempty" maxItems:"50" maxLength:"60" pattern:"^[a-z.*_]+$" patternDescription:"the type of an event, or a beginning as in job.*" doc:"what it gets. Defaults to all." example:"job.completed"`
}

// WebhookEdit changes a webhook. What is absent stays as it is.
type WebhookEdit struct {
	URL      *string   `json:"url,omitempty" maxLength:"2000" pattern:"^https?://" doc:"deliveries that wait are posted there, too"`
	Events   *[]string `json:"events,omitempty" maxItems:"50" maxLength:"60" pattern:"^[a-z.*_]+$" patternDescription:"the type of an event, or a beginning as in job.*"`
	Disabled *bool     `json:"disabled,omitempty" doc:"true: it gets nothing, and what waits for it is skipped"`
}

// WebhookPath is the path of a webhook.
type WebhookPath struct {
	ID string `path:"id" maxLength:"100" pattern:"^[A-Za-z0-9][A-Za-z0-9._-]*$" patternDescription:"the id of a webhook" doc:"id of the webhook" example:"wh-5c9d1f6e1f0b4d77"`
}

type newWebhookInput struct{ Body NewWebhook }

type editWebhookInput struct {
	WebhookPath
	Body WebhookEdit
}

type rotateInput struct {
	WebhookPath
	Body *struct {
		Keep *int64 `json:"keep_seconds,omitempty" minimum:"0" maximum:"2592000" doc:"for which requests are signed with the old secret too. Defaults to a day."`
	} `nameHint:"Rotation"`
}

type webhookOutput struct{ Body webhook.Endpoint }

type secretOutput struct {
	Body struct {
		Secret  string           `json:"secret" doc:"signs the requests; it is shown once" example:"whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"`
		Webhook webhook.Endpoint `json:"webhook"`
	} `nameHint:"WebhookSecret"`
}

type webhooksOutput struct {
	Body struct {
		Webhooks []webhook.Endpoint `json:"webhooks"`
	} `nameHint:"WebhookList"`
}

type deliveriesInput struct {
	WebhookPath
	State  string `query:"state" enum:"pending,sending,delivered,failed,skipped" doc:"Defaults to all."`
	Limit  int    `query:"limit" minimum:"1" maximum:"500" default:"50"`
	Cursor string `query:"cursor" maxLength:"100" doc:"next of the page before"`
}

type deliveriesOutput struct{ Body webhook.DeliveryPage }

type deliveryInput struct {
	WebhookPath
	Delivery string    `path:"delivery" maxLength:"100" pattern:"^[A-Za-z0-9-]+$" patternDescription:"the id of a delivery" doc:"id of the delivery" example:"1735689600000-0"`
	Body     *struct{} `nameHint:"Redelivery"`
}

type testInput struct {
	WebhookPath
	Body *struct{} `nameHint:"WebhookTest"`
}

type deliveryOutput struct{ Body webhook.Delivery }

// defaultOverlap is how long an old secret is valid beside a new one unless a request says.
const defaultOverlap = 24 * time.Hour

// addWebhooks adds the webhooks and their deliveries. All of it is for admins: who can send events elsewhere can read all.
func addWebhooks(s *server) {
	hooks := s.cfg.Webhooks
	op := describe(s, http.MethodGet, "/webhooks", "listWebhooks", tagWebhooks, "List the webhooks")
	needs(&op, access.Admin)
	route(s, op, 0, func(ctx context.Context, _ *nothing) (*webhooksOutput, error) {
		list, err := hooks.List(ctx)
		out := &webhooksOutput{}
		out.Body.Webhooks = orEmpty(list)
		return out, err
	})
	op = describe(s, http.MethodPost, "/webhooks", "createWebhook", tagWebhooks, "Create a webhook", http.StatusConflict)
	needs(&op, access.Admin)
	op.DefaultStatus = http.StatusCreated
	route(s, op, maxBody, func(ctx context.Context, in *newWebhookInput) (*secretOutput, error) {
		e, secret, err := hooks.Create(ctx, webhook.NewEndpoint{Name: in.Body.Name, URL: in.Body.URL, Events: in.Body.Events})
		return withSecret(e, secret), err
	})
	op = describe(s, http.MethodGet, "/webhooks/{id}", "getWebhook", tagWebhooks, "Get a webhook", http.StatusNotFound)
	needs(&op, access.Admin)
	route(s, op, 0, func(ctx context.Context, in *WebhookPath) (*webhookOutput, error) {
		e, err := hooks.Get(ctx, in.ID)
		return &webhookOutput{e}, err
	})
	op = describe(s, http.MethodPatch, "/webhooks/{id}", "editWebhook", tagWebhooks, "Change, disable or enable a webhook", http.StatusNotFound, http.StatusConflict)
	needs(&op, access.Admin)
	route(s, op, maxBody, func(ctx context.Context, in *editWebhookInput) (*webhookOutput, error) {
		e, err := hooks.Edit(ctx, in.ID, webhook.Edit{URL: in.Body.URL, Events: in.Body.Events, Disabled: in.Body.Disabled})
		return &webhookOutput{e}, err
	})
	op = describe(s, http.MethodDelete, "/webhooks/{id}", "removeWebhook", tagWebhooks, "Remove a webhook; what waits for it is not sent", http.StatusNotFound, http.StatusConflict)
	needs(&op, access.Admin)
	route(s, op, 0, func(ctx context.Context, in *WebhookPath) (*nothing, error) { return nil, hooks.Remove(ctx, in.ID) })

	op = describe(s, http.MethodPost, "/webhooks/{id}/rotate", "rotateWebhookSecret", tagWebhooks, "Give a webhook a new secret", http.StatusNotFound, http.StatusConflict)
	needs(&op, access.Admin)
	route(s, op, maxBody, func(ctx context.Context, in *rotateInput) (*secretOutput, error) {
		keep := defaultOverlap
		if in.Body != nil && in.Body.Keep != nil {
			keep = time.Duration(*in.Body.Keep) * time.Second
		}
		e, secret, err := hooks.Rotate(ctx, in.ID, keep)
		return withSecret(e, secret), err
	})
	addDeliveries(s)
}

func withSecret(e webhook.Endpoint, secret string) *secretOutput {
	out := &secretOutput{}
	out.Body.Secret, out.Body.Webhook = secret, e
	return out
}

// addDeliveries adds the deliveries to webhooks.
func addDeliveries(s *server) {
	hooks := s.cfg.Webhooks
	op := describe(s, http.MethodGet, "/webhooks/{id}/deliveries", "listDeliveries", tagWebhooks, "List the deliveries to a webhook, the newest first", http.StatusNotFound)
	needs(&op, access.Admin)
	route(s, op, 0, func(ctx context.Context, in *deliveriesInput) (*deliveriesOutput, error) {
		page, err := hooks.Deliveries(ctx, in.ID, webhook.DeliveryFilter{State: in.State, Limit: in.Limit, Cursor: in.Cursor})
		return &deliveriesOutput{page}, err
	})
	op = describe(s, http.MethodPost, "/webhooks/{id}/deliveries/{delivery}/redeliver", "redeliver", tagWebhooks, "Send a delivery that has ended again, with the same id", http.StatusNotFound, http.StatusConflict)
	needs(&op, access.Admin)
	route(s, op, maxBody, func(ctx context.Context, in *deliveryInput) (*deliveryOutput, error) {
		d, err := hooks.Redeliver(ctx, in.ID, in.Delivery)
		return &deliveryOutput{d}, err
	})
	op = describe(s, http.MethodPost, "/webhooks/{id}/test", "testWebhook", tagWebhooks, "Send an event of the type webhook.test to a webhook", http.StatusNotFound, http.StatusConflict)
	needs(&op, access.Admin)
	route(s, op, maxBody, func(ctx context.Context, in *testInput) (*deliveryOutput, error) {
		d, err := hooks.Test(ctx, in.ID)
		return &deliveryOutput{d}, err
	})
}
