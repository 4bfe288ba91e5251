package client

import (
	"context"
	"net/http"
	"net/url"
	"strconv"

	"muster/orchestrator/webhook"
)

// NewWebhook is a webhook to create.
type NewWebhook struct {
	Name   string   `json:"name,omitempty" maxLength:"100" pattern:"^[A-Za-z0-9][A-Za-z0-9._-]*$" doc:"unique name. Defaults to the id." example:"ops"`
	URL    string   `json:"url" maxLength:"2000" pattern:"^https?://" patternDescription:"an http or https URL" doc:"that receives the events. Its address must be public, or in the setting network.allow." example:"https://ops.example.org/muster"`
	Events []string `json:"events,omitempty" maxItems:"50" maxLength:"60" pattern:"^[a-z.*_]+$" patternDescription:"the type of an event, or a prefix as in job.*" doc:"types of events to send. Defaults to all." example:"job.completed"`
}

// WebhookEdit changes a webhook. Absent fields are unchanged.
type WebhookEdit struct {
	URL      *string   `json:"url,omitempty" maxLength:"2000" pattern:"^https?://" patternDescription:"an http or https URL" doc:"waiting deliveries are sent to it, too"`
	Events   *[]string `json:"events,omitempty" maxItems:"50" maxLength:"60" pattern:"^[a-z.*_]+$" patternDescription:"the type of an event, or a prefix as in job.*"`
	Disabled *bool     `json:"disabled,omitempty" doc:"true: it receives nothing, and its waiting deliveries are skipped"`
}

// WebhookSecret is a webhook with a new secret.
type WebhookSecret struct {
	webhook.Endpoint
	Secret string `json:"secret" doc:"signs the requests. It is returned once." example:"whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"`
}

// SecretRotation configures the replacement of the secret of a webhook.
type SecretRotation struct {
	Keep string `json:"keep,omitempty" maxLength:"20" example:"24h" doc:"time for which requests are also signed with the old secret, up to 720h. Defaults to 24h."`
}

// DeliveryFilter selects deliveries to a webhook.
type DeliveryFilter struct {
	State string // pending, sending, delivered, failed or skipped. Defaults to all.
	Limit int    // number of deliveries. Defaults to all.
}

func webhookPath(id string, more ...string) string {
	path := "/v1/webhooks/" + url.PathEscape(id)
	for _, part := range more {
		path += "/" + url.PathEscape(part)
	}
	return path
}

// Webhooks lists the webhooks.
func (c *Client) Webhooks(ctx context.Context) ([]webhook.Endpoint, error) {
	return all[webhook.Endpoint](ctx, c, "/v1/webhooks", nil, 0)
}

// CreateWebhook creates a webhook.
func (c *Client) CreateWebhook(ctx context.Context, n NewWebhook) (w WebhookSecret, err error) {
	err = c.do(ctx, http.MethodPost, "/v1/webhooks", nil, n, &w)
	return w, err
}

// Webhook returns the webhook with an id or a name.
func (c *Client) Webhook(ctx context.Context, id string) (w webhook.Endpoint, err error) {
	err = c.do(ctx, http.MethodGet, webhookPath(id), nil, nil, &w)
	return w, err
}

// EditWebhook changes a webhook.
func (c *Client) EditWebhook(ctx context.Context, id string, e WebhookEdit) (w webhook.Endpoint, err error) {
	err = c.do(ctx, http.MethodPatch, webhookPath(id), nil, e, &w)
	return w, err
}

// DeleteWebhook deletes a webhook. Its waiting deliveries are not sent.
func (c *Client) DeleteWebhook(ctx context.Context, id string) error {
	return c.do(ctx, http.MethodDelete, webhookPath(id), nil, nil, nil)
}

// RotateWebhookSecret gives a webhook a new secret.
func (c *Client) RotateWebhookSecret(ctx context.Context, id string, r SecretRotation) (w WebhookSecret, err error) {
	err = c.do(ctx, http.MethodPost, webhookPath(id, "rotate"), nil, r, &w)
	return w, err
}

// Deliveries lists the deliveries to a webhook, the newest first.
func (c *Client) Deliveries(ctx context.Context, id string, f DeliveryFilter) ([]webhook.Delivery, error) {
	size := 500
	if f.Limit > 0 {
		size = min(size, f.Limit)
	}
	query := url.Values{"limit": {strconv.Itoa(size)}}
	if f.State != "" {
		query.Set("state", f.State)
	}
	return all[webhook.Delivery](ctx, c, webhookPath(id, "deliveries"), query, f.Limit)
}

// Redeliver sends a delivery that has ended again, with the same id.
func (c *Client) Redeliver(ctx context.Context, id, delivery string) (d webhook.Delivery, err error) {
	err = c.do(ctx, http.MethodPost, webhookPath(id, "deliveries", delivery, "redeliver"), nil, nil, &d)
	return d, err
}

// TestWebhook sends an event of the type webhook.test to a webhook.
func (c *Client) TestWebhook(ctx context.Context, id string) (d webhook.Delivery, err error) {
	err = c.do(ctx, http.MethodPost, webhookPath(id, "test"), nil, nil, &d)
	return d, err
}
