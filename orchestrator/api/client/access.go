package client

import (
	"net/http"
	"time"

	"muster/internal/limit"
	"muster/orchestrator/access"
	"muster/orchestrator/health"
	"muster/orchestrator/webhook"
)

// KeyPath is the path of a key.
type KeyPath struct {
	ID string `path:"id" maxLength:"60" pattern:"^[A-Za-z0-9][A-Za-z0-9._:@-]*$" patternDescription:"the id or the name of a key" doc:"id of the key, or its name if one active key has it" example:"5c9d1f6e1f0b"`
}

// AuditFilter selects entries of the audit log.
type AuditFilter struct {
	Caller string    `query:"caller" maxLength:"200" doc:"name or id of a caller"`
	Since  time.Time `query:"since" doc:"only entries since this time" example:"2026-11-01T00:00:00Z"`
	Cursor string    `query:"cursor" maxLength:"50" doc:"next of the previous page"`
	Limit  int       `query:"limit" minimum:"1" maximum:"1000" default:"100" doc:"entries on a page"`
}

// Operations on keys, and the audit log.
var (
	GetCaller = Declare[None, Caller]("GET /v1/caller", "getCaller", "access", "Get the caller that a request comes from", forReaders)
	ListKeys  = Declare[None, Page[Key]]("GET /v1/keys", "listKeys", "access", "List the stored keys, the oldest first", forAdmins,
		Says("The list includes revoked and expired keys."))
	CreateKey = Declare[With[NewKey], CreatedKey]("POST /v1/keys", "createKey", "access", "Create a key", forAdmins, Fails(http.StatusConflict), Returns(http.StatusCreated))
	RevokeKey = Declare[KeyPath, Key]("DELETE /v1/keys/{id}", "revokeKey", "access", "Revoke a key", forAdmins, Fails(http.StatusNotFound), Returns(http.StatusOK),
		Says("The key stays in the list. Within two seconds no process accepts it."))
	ListAudit = Declare[AuditFilter, Page[access.Entry]]("GET /v1/audit", "listAudit", "access", "List mutating requests with their callers and statuses, the newest first",
		forAdmins, Says("With caller, a page may be short or empty and still have next."))
)

// Key is a stored API key, without its secret.
type Key struct {
	access.Key
	State string `json:"state" enum:"active,expired,revoked,damaged"`
}

// NewKey is a key to create.
type NewKey struct {
	Name       string     `json:"name" cli:"name" pattern:"^[A-Za-z0-9][A-Za-z0-9._:@-]*$" patternDescription:"1 to 60 letters, digits, or . _ : @ - after the first" maxLength:"60" doc:"name of the user or program. Keys of the same name are the same owner of agents." example:"ci"`
	Role       string     `json:"role" cli:"role" enum:"viewer,operator,admin,agent"`
	AgentRoles []string   `json:"agent_roles,omitempty" cli:"agent-role" maxItems:"20" pattern:"^[a-z0-9_-]+$" patternDescription:"small letters, digits, _ and -" maxLength:"40" doc:"of a key of the role agent: roles that its agents may have. Defaults to any." example:"validator"`
	Expires    *time.Time `json:"expires_at,omitempty" cli:"expires" doc:"when the key expires. Defaults to never."`
}

// CreatedKey is a key with its secret.
type CreatedKey struct {
	Key
	Secret string `json:"secret" doc:"the key itself. It is returned once, and not stored."`
}

// Caller identifies the caller of a request.
type Caller struct {
	Name string      `json:"name" doc:"of the key, or the subject of the token; open where no key is needed"`
	ID   string      `json:"id,omitempty" doc:"of the key or token"`
	Role access.Role `json:"role"`
}

// WebhookSecret is a webhook with a new secret.
type WebhookSecret struct {
	webhook.Endpoint
	Secret string `json:"secret" doc:"signs the requests. It is returned once." example:"whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"`
}

// WebhookPath is the path of a webhook.
type WebhookPath struct {
	ID string `path:"id" maxLength:"100" pattern:"^[A-Za-z0-9][A-Za-z0-9._-]*$" patternDescription:"the id or the name of a webhook" doc:"id or name of the webhook" example:"wh-5c9d1f6e1f0b4d77"`
}

// WebhookChange is the input of EditWebhook.
type WebhookChange struct {
	WebhookPath
	Body webhook.EndpointEdit
}

// WebhookTest is the input of TestWebhook.
type WebhookTest struct {
	WebhookPath
	Body *struct{} `nameHint:"WebhookTest"`
}

// DeliveryFilter selects deliveries to a webhook.
type DeliveryFilter struct {
	WebhookPath
	State  string `query:"state" enum:"pending,sending,delivered,failed,skipped" doc:"Defaults to all."`
	Limit  int    `query:"limit" minimum:"1" maximum:"500" default:"50" doc:"deliveries on a page"`
	Cursor string `query:"cursor" maxLength:"100" doc:"next of the previous page"`
}

// DeliveryChange is the input of Redeliver.
type DeliveryChange struct {
	WebhookPath
	Delivery string    `path:"delivery" maxLength:"100" pattern:"^[A-Za-z0-9-]+$" patternDescription:"the id of a delivery" doc:"id of the delivery" example:"1735689600000-0"`
	Body     *struct{} `nameHint:"Redelivery"`
}

// Operations on webhooks. They need the role admin, because the creator of a webhook can read all events.
var (
	ListWebhooks  = Declare[None, Page[webhook.Endpoint]]("GET /v1/webhooks", "listWebhooks", "webhooks", "List the webhooks", forAdmins)
	CreateWebhook = Declare[With[webhook.NewEndpoint], WebhookSecret]("POST /v1/webhooks", "createWebhook", "webhooks", "Create a webhook", forAdmins, Fails(http.StatusConflict), Returns(http.StatusCreated))
	GetWebhook    = Declare[WebhookPath, webhook.Endpoint]("GET /v1/webhooks/{id}", "getWebhook", "webhooks", "Get a webhook", forAdmins, Fails(http.StatusNotFound))
	EditWebhook   = Declare[WebhookChange, webhook.Endpoint]("PATCH /v1/webhooks/{id}", "editWebhook", "webhooks", "Change, disable or enable a webhook", forAdmins, ofEnded)
	DeleteWebhook = Declare[WebhookPath, None]("DELETE /v1/webhooks/{id}", "deleteWebhook", "webhooks", "Delete a webhook; its waiting deliveries are not sent", forAdmins, ofEnded)

	ListDeliveries = Declare[DeliveryFilter, Page[webhook.Delivery]]("GET /v1/webhooks/{id}/deliveries", "listDeliveries", "webhooks", "List the deliveries to a webhook, the newest first", forAdmins, Fails(http.StatusNotFound))
	Redeliver      = Declare[DeliveryChange, webhook.Delivery]("POST /v1/webhooks/{id}/deliveries/{delivery}/redeliver", "redeliver", "webhooks", "Send a delivery that has ended again, with the same id", forAdmins, ofEnded)
	TestWebhook    = Declare[WebhookTest, webhook.Delivery]("POST /v1/webhooks/{id}/test", "testWebhook", "webhooks", "Send an event of the type webhook.test to a webhook", forAdmins, ofEnded)
)

// BreakerReset selects the circuit breakers to close: Names or All.
type BreakerReset struct {
	Names []string `json:"names,omitempty" cli:"args" maxItems:"1000" maxLength:"300" doc:"keys of breakers, or the site, host or id in keys" example:"quotes.toscrape.com"`
	All   bool     `json:"all,omitempty" cli:"all" doc:"close all breakers"`
}

// Operations on circuit breakers.
var (
	ListBreakers  = Declare[None, Page[limit.BreakerState]]("GET /v1/breakers", "listBreakers", "state", "List the circuit breakers that are not closed")
	ResetBreakers = Declare[With[BreakerReset], Page[string]]("POST /v1/breakers/reset", "resetBreakers", "state", "Close circuit breakers and forget their failures",
		Fails(http.StatusNotFound), Says("The response has the keys of the breakers that were closed."))
)

// GetHealthReport checks the parts of the system.
var GetHealthReport = Declare[None, health.Report]("GET /v1/health", "getHealthReport", "state", "Check Redis, the workers, the agents, the scrapes and the proxies")
