// Package access authenticates the callers of the HTTP API and defines their permissions.
package access

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
)

// minKey is the minimum length of static keys.
const minKey = 32

// Denied means that a credential is rejected.
type Denied struct{ Why string }

// Error returns the reason.
func (e *Denied) Error() string { return e.Why }

// Gate authenticates callers by static keys of the settings, stored keys and tokens of an identity provider. A nil Gate accepts
// all callers. It is safe for concurrent use.
type Gate struct {
	static atomic.Pointer[[][sha256.Size]byte]
	local  *[sha256.Size]byte // nil if there is none
	keys   *Keys
	tokens *Tokens
}

// NewGate returns a Gate. Static keys have the role admin; keys and tokens may be nil.
func NewGate(static []string, keys *Keys, tokens *Tokens) (*Gate, error) {
	g := &Gate{keys: keys, tokens: tokens}
	if err := g.SetStatic(static); err != nil {
		return nil, err
	}
	return g, nil
}

// SetStatic replaces the static keys. If it returns an error, nothing has changed.
func (g *Gate) SetStatic(static []string) error {
	var sums [][sha256.Size]byte
	for _, key := range static {
		if len(key) < minKey {
			return fmt.Errorf("a short key: use at least %d characters", minKey)
		}
		sums = append(sums, sha256.Sum256([]byte(key)))
	}
	g.static.Store(&sums)
	return nil
}

// Closed reports whether requests need a credential: there are static keys, tokens are accepted, or a key has been created. A key
// created by another process takes effect within two seconds.
func (g *Gate) Closed(ctx context.Context) (bool, error) {
	switch {
	case g == nil:
		return false, nil
	case len(*g.static.Load()) > 0 || g.tokens != nil:
		return true, nil
	case g.keys != nil:
		return g.keys.Any(ctx)
	}
	return false, nil
}

// Identify returns the caller with a credential. It returns a *Denied for an unknown credential, and another error if the
// credential cannot be checked.
func (g *Gate) Identify(ctx context.Context, credential string) (Caller, error) {
	if i := g.staticKey(credential); i >= 0 {
		return Caller{Name: "api.keys", ID: fmt.Sprintf("settings-%d", i+1), Role: Admin}, nil
	}
	if g.keys != nil && strings.HasPrefix(credential, prefix) {
		key, err := g.keys.verify(ctx, credential)
		if err != nil {
			return Caller{}, err
		}
		return Caller{Name: key.Name, ID: key.ID, Role: key.Role, AgentRoles: strings.Join(key.AgentRoles, " ")}, nil
	}
	if g.tokens != nil && strings.Count(credential, ".") == 2 {
		return g.tokens.verify(ctx, credential)
	}
	return Caller{}, &Denied{"invalid key"}
}

// staticKey returns the index of the static key that equals a credential, or -1. It compares all keys, in constant time.
func (g *Gate) staticKey(credential string) int {
	sum, found := sha256.Sum256([]byte(credential)), -1
	for i, want := range *g.static.Load() {
		found = subtle.ConstantTimeSelect(subtle.ConstantTimeCompare(sum[:], want[:]), i, found)
	}
	return found
}

// CommandLine is the caller of requests with the local key, which commands on the machine of the orchestrator read from a file
// in its data directory.
var CommandLine = Caller{Name: "command line", ID: "local", Role: Admin}

// NewLocalKey returns a random key for commands on this machine.
func NewLocalKey() string { return rand.Text() + rand.Text() }

// SetLocal sets the key of CommandLine. It does not count as a configured key: without other keys, the gate stays open. It must
// be called before the gate is used.
func (g *Gate) SetLocal(key string) {
	sum := sha256.Sum256([]byte(key))
	g.local = &sum
}

// Local reports whether a credential is the local key.
func (g *Gate) Local(credential string) bool {
	if g == nil || g.local == nil {
		return false
	}
	sum := sha256.Sum256([]byte(credential))
	return subtle.ConstantTimeCompare(sum[:], g.local[:]) == 1
}

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
