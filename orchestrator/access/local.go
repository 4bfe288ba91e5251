package access

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
)

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
