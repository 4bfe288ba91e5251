// Package access says who calls the orchestrator over HTTP, and what that caller may do.
package access

import (
	"context"
	"fmt"
	"slices"
	"strings"
)

// Role is what a caller may do.
type Role string

// The roles.
const (
	Viewer   Role = "viewer"   // reads
	Operator Role = "operator" // reads, and changes jobs, agents, sites and proxies
	Admin    Role = "admin"    // everything: keys, webhooks, the audit log and the pages of the queues, too
	Agent    Role = "agent"    // does the work of agents, and reads what they need for it; nothing else
)

// Roles are all roles.
var Roles = []Role{Viewer, Operator, Admin, Agent}

// ParseRole returns the role with a name.
func ParseRole(name string) (Role, error) {
	if r := Role(name); slices.Contains(Roles, r) {
		return r, nil
	}
	return "", fmt.Errorf("no role %.40q; use one of %s", name, names(Roles))
}

// May reports whether a caller with this role may do what takes the role need.
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

// Caller is who a request comes from.
type Caller struct {
	Name       string // of the key, or the subject of the token; "open" where no key is needed
	ID         string // of the key or token: not secret. "" where no key is needed
	Role       Role
	AgentRoles string // that its agents may have, with spaces between; "": any
}

// Open is the caller while no key is needed.
var Open = Caller{Name: "open", Role: Admin}

// IsToken reports whether the caller has a token, and not a key.
func (c Caller) IsToken() bool { return strings.HasPrefix(c.ID, tokenID) }

// Owner is the caller as the owner of agents. Keys of the same name are the same
// owner, so that a key can be replaced; so are tokens of the same subject.
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

// WithCaller returns a context of a request from a caller.
func WithCaller(ctx context.Context, c Caller) context.Context {
	return context.WithValue(ctx, callerKey{}, c)
}

// CallerOf returns who the request of ctx comes from; a Caller without a role if ctx belongs to no request.
func CallerOf(ctx context.Context) Caller {
	c, _ := ctx.Value(callerKey{}).(Caller)
	return c
}
