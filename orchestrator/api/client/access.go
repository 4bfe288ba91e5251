package client

import (
	"context"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"muster/orchestrator/access"
)

// Key is a stored API key, without its secret.
type Key struct {
	access.Key
	State string `json:"state" enum:"active,expired,revoked,damaged"`
}

// NewKey is a key to create.
type NewKey struct {
	Name       string     `json:"name" pattern:"^[A-Za-z0-9][A-Za-z0-9._:@-]*$" patternDescription:"1 to 60 letters, digits, or . _ : @ - after the first" maxLength:"60" doc:"name of the user or program. Keys of the same name are the same owner of agents." example:"ci"`
	Role       string     `json:"role" enum:"viewer,operator,admin,agent"`
	AgentRoles []string   `json:"agent_roles,omitempty" maxItems:"20" pattern:"^[a-z0-9_-]+$" patternDescription:"small letters, digits, _ and -" maxLength:"40" doc:"of a key of the role agent: roles that its agents may have. Defaults to any." example:"validator"`
	Expires    *time.Time `json:"expires_at,omitempty" doc:"when the key expires. Defaults to never."`
}

// CreatedKey is a key with its secret.
type CreatedKey struct {
	Key
	Secret string `json:"secret" doc:"the key itself. It is returned once, and not stored."`
}

// Caller returns the identity of the caller.
func (c *Client) Caller(ctx context.Context) (caller Caller, err error) {
	err = c.do(ctx, http.MethodGet, "/v1/caller", nil, nil, &caller)
	return caller, err
}

// Caller identifies the caller of a request.
type Caller struct {
	Name string      `json:"name" doc:"of the key, or the subject of the token; open where no key is needed"`
	ID   string      `json:"id,omitempty" doc:"of the key or token"`
	Role access.Role `json:"role"`
}

// Keys lists all keys, the oldest first, including revoked and expired ones.
func (c *Client) Keys(ctx context.Context) ([]Key, error) {
	return all[Key](ctx, c, "/v1/keys", nil, 0)
}

// CreateKey creates a key.
func (c *Client) CreateKey(ctx context.Context, k NewKey) (created CreatedKey, err error) {
	err = c.do(ctx, http.MethodPost, "/v1/keys", nil, k, &created)
	return created, err
}

// RevokeKey revokes the key with an id, or with a name that one active key has.
func (c *Client) RevokeKey(ctx context.Context, id string) (k Key, err error) {
	err = c.do(ctx, http.MethodDelete, "/v1/keys/"+url.PathEscape(id), nil, nil, &k)
	return k, err
}

// AuditFilter selects entries of the audit log.
type AuditFilter struct {
	Caller string    // name or key id. Defaults to all.
	Since  time.Time // Defaults to the oldest entry.
	Limit  int       // number of entries. Defaults to all.
}

// Audit lists the entries of the audit log, the newest first.
func (c *Client) Audit(ctx context.Context, f AuditFilter) ([]access.Entry, error) {
	query := url.Values{}
	if f.Caller != "" {
		query.Set("caller", f.Caller)
	}
	if !f.Since.IsZero() {
		query.Set("since", f.Since.Format(time.RFC3339Nano))
	}
	size := 1000
	if f.Limit > 0 {
		size = min(size, f.Limit)
	}
	query.Set("limit", strconv.Itoa(size))
	return all[access.Entry](ctx, c, "/v1/audit", query, f.Limit)
}
