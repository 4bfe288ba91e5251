package event

import (
	"crypto/sha256"
	"encoding/hex"
)

const prefix = "muster:{jobs}:events"

// AllKey is the key of the stream of all events: type, job, at (unix ms), data (JSON or ""). Whoever adds
// an event trims the stream; it does not expire. The braces are the slot of all keys of jobs.
func AllKey() string { return prefix }

// JobKey is the key of the stream of the events of a job. Its entries are those of AllKey, with the same ids. Whoever
// adds an event trims the stream; it is removed with the job.
func JobKey(id string) string { return prefix + ":" + id }

// OutboxKey is the key of the stream of the events that are not yet passed on to webhooks: id (of the event), type, job,
// at, data. Package webhook creates it with the first endpoint, and deletes it with the last; while it exists,
// each event is added to it by the script that adds the event to AllKey. Who has passed an entry on deletes it.
func OutboxKey() string { return "muster:{jobs}:outbox" }

// onceKey is a string: the id of an event that must be added once. Expires after a week.
func onceKey(name string) string {
	sum := sha256.Sum256([]byte(name))
	return "muster:{jobs}:once:" + hex.EncodeToString(sum[:16])
}
