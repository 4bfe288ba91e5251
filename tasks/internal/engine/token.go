package engine

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"strings"

	"muster/tasks/internal/graph"
	"muster/tasks/internal/store"
)

// A token is "<secret>.<workflow>.<node>", so that it leads to its node. Redis has a hash of the secret only.
type token struct{ hash, workflow, node string }

const secretSize = 16 // bytes

// newToken returns a token for a node, and the hash of its secret.
func newToken(workflow, node string) (full, hash string) {
	var secret [secretSize]byte
	_, _ = rand.Read(secret[:]) // it never fails
	return encodeToken(secret[:]) + "." + workflow + "." + node, hashToken(secret[:])
}

// encodeToken writes bytes as text for a token.
func encodeToken(b []byte) string { return base64.RawURLEncoding.EncodeToString(b) }

func hashToken(secret []byte) string {
	sum := sha256.Sum256(secret)
	return encodeToken(sum[:secretSize])
}

// parseToken reads a token. Its error does not repeat it: it is a secret.
func parseToken(s string) (token, error) {
	text, rest, _ := strings.Cut(strings.TrimSpace(s), ".")
	workflow, node, ok := strings.Cut(rest, ".")
	secret, err := base64.RawURLEncoding.DecodeString(text)
	if !ok || err != nil || len(secret) != secretSize || workflow == "" || len(workflow) > store.MaxReference {
		return token{}, fmt.Errorf("invalid token: %w", ErrUnknown)
	}
	if _, err := graph.ParseID(node); err != nil {
		return token{}, fmt.Errorf("invalid token: %w", ErrUnknown)
	}
	return token{hashToken(secret), workflow, node}, nil
}
