// Package access authenticates the callers of the HTTP API and defines their permissions.
package access

import (
	"context"
	"fmt"
	"slices"
	"strings"
)

// Role is a set of permissions.
type Role string

// The roles.
const (
	Viewer   Role = "viewer"   // read
	Operator Role = "operator" // read, and change jobs, agents, sites and proxies
	Admin    Role = "admin"    // everything, including keys, webhooks, the audit log and the queue pages
	Agent    Role = "agent"    // only the work of agents and the required reads
)

// Roles contains all roles.
var Roles = []Role{Viewer, Operator, Admin, Agent}

// ParseRole returns the role called name.
func ParseRole(name string) (Role, error) {
	if r := Role(name); slices.Contains(Roles, r) {
		return r, nil
	}
	return "", fmt.Errorf("unknown role %.40q; use one of %s", name, names(Roles))
}

// May reports whether the role includes the permissions of need.
func (r Role) May(need Role) bool {
	switch need {
	case Viewer:
		return r == Viewer || r == Operator || r == Admin
	case Operator:
		return r == Operator || r == Admin
	case Agent:
		return r == Agent || r == Operator || r == Admin
	}
	return r == Admin
}

func names(roles []Role) string {
	var all []string
	for _, r := range roles {
		all = append(all, string(r))
	}
	return strings.Join(all, ", ")
}

// Caller is the sender of a request.
type Caller struct {
	Name       string // name of the key or subject of the token; "open" without authentication
	ID         string // ID of the key or token, not secret; "" without authentication
	Role       Role
	AgentRoles string // space-separated roles that its agents may have; "": any
}

// Open is the caller of requests without authentication.
var Open = Caller{Name: "open", Role: Admin}

// IsToken reports whether the caller has a token instead of a key.
func (c Caller) IsToken() bool { return strings.HasPrefix(c.ID, tokenID) }

// Owner returns the caller as an owner of agents. Keys of the same name are the same owner, so that a key can be replaced, and so
// are tokens of the same subject.
func (c Caller) Owner() string {
	if c.IsToken() {
		return "token:" + c.Name
	}
	return "key:" + c.Name
}

// MayHave reports whether agents of the caller may have a role.
func (c Caller) MayHave(role string) bool {
	return c.AgentRoles == "" || slices.Contains(strings.Fields(c.AgentRoles), role)
}

type callerKey struct{}

// WithCaller returns a context with the caller of a request.
func WithCaller(ctx context.Context, c Caller) context.Context {
	return context.WithValue(ctx, callerKey{}, c)
}

// CallerOf returns the caller of the request of ctx, or a Caller without a role if ctx does not belong to a request.
func CallerOf(ctx context.Context) Caller {
	c, _ := ctx.Value(callerKey{}).(Caller)
	return c
}
