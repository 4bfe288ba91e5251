package limit

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
	"unicode"
)

// tag returns a key's hash tag: the key, or its digest if it is empty, very long
// or has characters that a tag cannot have.
func tag(key string) string {
	if key == "" || len(key) > 200 || strings.ContainsAny(key, "{}") || strings.ContainsFunc(key, unicode.IsControl) {
		sum := sha256.Sum256([]byte(key))
		return "{sha256-" + hex.EncodeToString(sum[:]) + "}"
	}
	return "{" + key + "}"
}

// slotKeys are, for one key of a KeyedLimiter: a sorted set of holders by the
// unix ms at which they expire; a sorted set of waiters by their place; a hash
// of waiter → unix ms until which it is alive; and a string with the limit, if it
// was set. All but the last expire when there are no holders and waiters.
func slotKeys(namespace, key string) []string {
	p := namespace + ":limit:" + tag(key)
	return []string{p + ":slots", p + ":waiters", p + ":alive", p + ":max"}
}

// bucketKey is a hash: tokens (a decimal), at (unix µs). It expires when the
// bucket is full again, never if it does not fill.
func bucketKey(namespace, key string) string { return namespace + ":bucket:" + tag(key) }

// paceKey is a string: the unix µs of the next free moment, and how many µs that was ahead when it was stored. It expires then.
func paceKey(namespace, key string) string { return namespace + ":pace:" + tag(key) }

// breakerKeys are a hash (state, failures, opened_at, since and until in unix ms,
// trials_failed, last_block; allowed and blocked requests since it opened) and a sorted set of trials by the unix ms at which
// they expire. Both expire after a day without a report.
func breakerKeys(namespace, key string) []string {
	p := namespace + ":breaker:" + tag(key)
	return []string{p, p + ":trials"}
}

// breakerIndex is a sorted set of the keys whose breaker has opened, by unix
// ms. It does not expire; states that have closed are removed when it is read.
func breakerIndex(namespace string) string { return namespace + ":breakers" }
