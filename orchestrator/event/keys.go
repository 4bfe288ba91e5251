package event

import (
	"crypto/sha256"
	"encoding/hex"
)

const prefix = "muster:{jobs}:events"

// AllKey is the key of the stream of all events: type, job, at (unix ms), data (JSON or ""). Adding an event trims the stream, or
// the relay of webhooks does; it does not expire. The braces are the slot of all keys of jobs.
func AllKey() string { return prefix }

// JobKey is the key of the stream of a job's events. Its entries equal the entries of AllKey, with the same ids. Adding an event
// trims the stream; it is removed with the job.
func JobKey(id string) string { return prefix + ":" + id }

// RelayedKey is a string: the id of the last event with queued webhook deliveries. Package webhook creates it with the first
// endpoint and deletes it with the last. While it exists, the stream of all events is trimmed only up to this event.
func RelayedKey() string { return "muster:{jobs}:relayed" }

// onceKey is a string: the id of an event that may be added only once. Expires after a week.
func onceKey(name string) string {
	sum := sha256.Sum256([]byte(name))
	return "muster:{jobs}:once:" + hex.EncodeToString(sum[:16])
}
