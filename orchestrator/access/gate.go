package access

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"fmt"
	"strings"
	"sync/atomic"
)

// minKey is the shortest key of the settings that is accepted.
const minKey = 8

// Denied means that a credential is not accepted.
type Denied struct{ Why string }

// Error says why.
func (e *Denied) Error() string { return e.Why }

// Gate says who a credential belongs to: a key of the settings, a stored key, or a
// token of an identity provider. A nil Gate is open. It is safe for concurrent use.
type Gate struct {
	static atomic.Pointer[[][sha256.Size]byte]
	local  *[sha256.Size]byte // nil: none
	keys   *Keys
	tokens *Tokens
}

// NewGate returns a Gate. The keys of the settings are those of admins; keys and
// tokens may be nil.
func NewGate(static []string, keys *Keys, tokens *Tokens) (*Gate, error) {
	g := &Gate{keys: keys, tokens: tokens}
	if err := g.SetStatic(static); err != nil {
		return nil, err
	}
	return g, nil
}

// SetStatic replaces the keys of the settings. On an error nothing has changed.
func (g *Gate) SetStatic(static []string) error {
	var sums [][sha256.Size]byte
	for _, key := range static {
		if len(key) < minKey {
			return fmt.Errorf("a key of api.keys is too short: use at least %d characters", minKey)
		}
		sums = append(sums, sha256.Sum256([]byte(key)))
	}
	g.static.Store(&sums)
	return nil
}

// Closed reports whether requests need a credential: there are keys in the
// settings, tokens are accepted, or a key was ever created. It may be two
// seconds late for a key that another process creates.
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

// Identify returns who a credential belongs to. It returns a *Denied if to no caller, and
// another error if that is not known now. With guarded it does not accept the
// keys of the settings, which people choose and others may guess.
func (g *Gate) Identify(ctx context.Context, credential string, guarded bool) (Caller, error) {
	if i := g.staticKey(credential); i >= 0 && !guarded {
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
	return Caller{}, &Denied{"the key is wrong"}
}

// Guessable reports whether a credential is compared with the keys of the settings, which people choose, and is not of
// the form of a stored key, whose secret is random.
func (g *Gate) Guessable(credential string) bool {
	if g == nil || len(*g.static.Load()) == 0 {
		return false
	}
	_, _, err := splitKey(credential)
	return err != nil || !strings.HasPrefix(credential, prefix)
}

// staticKey returns which of the keys of the settings a credential is, or -1. All
// are compared, in the same time whatever the credential is.
func (g *Gate) staticKey(credential string) int {
	sum, found := sha256.Sum256([]byte(credential)), -1
	for i, want := range *g.static.Load() {
		found = subtle.ConstantTimeSelect(subtle.ConstantTimeCompare(sum[:], want[:]), i, found)
	}
	return found
}
