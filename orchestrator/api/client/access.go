package client

import (
	"net/http"
	"time"

	"muster/orchestrator/access"
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
