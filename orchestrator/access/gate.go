package access

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"fmt"
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
			return fmt.Errorf("api.keys contains a short key: use at least %d characters", minKey)
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
