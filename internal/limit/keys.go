package limit

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
	"unicode"
)

// tag returns the hash tag of a key: the key, or its digest if it is empty, very long or contains invalid characters.
func tag(key string) string {
	if key == "" || len(key) > 200 || strings.ContainsAny(key, "{}") || strings.ContainsFunc(key, unicode.IsControl) {
		sum := sha256.Sum256([]byte(key))
		return "{sha256-" + hex.EncodeToString(sum[:]) + "}"
	}
	return "{" + key + "}"
}

// slotKeys are, for one key of a KeyedLimiter: a sorted set of holders by expiry in unix ms; a sorted set of waiters
// by position in the queue; and a hash of waiter → expiry in unix ms. They expire without holders and waiters.
func slotKeys(key string) []string {
	p := "muster:limit:" + tag(key)
	return []string{p + ":slots", p + ":waiters", p + ":alive"}
}

// bucketKey is a hash: tokens (a decimal), at (unix µs). It expires when the bucket is full, never if it is not
// refilled.
func bucketKey(namespace, key string) string { return namespace + ":bucket:" + tag(key) }

// paceKey is a string: the unix µs of the next free time, and its distance in µs when it was stored. It expires at
// that time.
func paceKey(key string) string { return "muster:pace:" + tag(key) }

// breakerKeys are a hash (state, failures, opened_at, since and until in unix ms, trials_failed, last_block; allowed
// and blocked requests since it opened) and a sorted set of trials by expiry in unix ms. Both expire after a day
// without a report.
func breakerKeys(namespace, key string) []string {
	p := namespace + ":breaker:" + tag(key)
	return []string{p, p + ":trials"}
}

// breakerIndex is a sorted set of the keys with an open breaker, by unix ms. It does not expire; closed breakers are
// removed by readers.
func breakerIndex(namespace string) string { return namespace + ":breakers" }
