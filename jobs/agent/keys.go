package agent

import (
	"crypto/sha256"
	"encoding/hex"
	"time"
)

// keys are the Redis keys of the agents. They share the hash tag {agents}, so
// that one script can change an agent and its assignments. Keys have no expiry
// unless their comment states one.
type keys struct{ prefix string }

func newKeys() keys { return keys{"muster:{agents}:"} }

// agents is a hash: id of an agent → its record as JSON.
func (k keys) agents() string { return k.prefix + "agents" }

// seen is a sorted set: id → unix ms of the last heartbeat.
func (k keys) seen() string { return k.prefix + "seen" }

// owners is a hash: id of an agent → the agent key that may act for it; without one only operators may.
func (k keys) owners() string { return k.prefix + "owners" }

// free is a sorted set of the agents: id → unix ms until which the agent gets no work, because it or its connection asked for
// that; drained if it is drained.
func (k keys) free() string { return k.prefix + "free" }

// drained is the time until which a drained agent gets no work.
const drained = 1 << 53

// checks is a sorted set: id of an agent with a URL → unix ms of its next health check.
func (k keys) checks() string { return k.prefix + "checks" }

// health is a hash: id → the last health check as JSON: at (unix ms), failures in a row, and message, empty after a success.
func (k keys) health() string { return k.prefix + "health" }

// version is a counter that moves when the agents that get work may have changed.
func (k keys) version() string { return k.prefix + "version" }

// held is a sorted set: id of an assignment that the agent holds → unix ms at which its lease expires. Expires a
// day after the agent was removed, or, for a Go task, after the last change.
func (k keys) held(agent string) string { return k.prefix + "held:" + agent }

// role is a sorted set: id of an assignment of a role with a limit → unix ms at which its lease expires. Expires a day after
// the last of them began.
func (k keys) role(role string) string { return k.prefix + "role:" + role }

// broke is a string: how many agents have gone while they worked on an item, by the idempotency key of its assignments.
// It expires a day after the last one.
func (k keys) broke(key string) string { return k.prefix + "broke:" + key }

// numbers is a hash of an agent: done, failed, last_error, idle (unix ms; 0 at first), activity, current_job, and totals of its
// usage as "usage NAME".
func (k keys) numbers(agent string) string { return k.prefix + "numbers:" + agent }

// hour is a hash of the work of agents in an hour, in UTC: "<agent> <counter>" → number, of assignments, failed, ms, requests
// and tokens. It expires 26 hours after a counter was added.
func (k keys) hour(at time.Time) string { return k.prefix + "hour:" + at.UTC().Format("2006010215") }

// assignment is a string with the record of an assignment without its work, by its id: "outcome digest usage", with the usage
// so far as JSON, and once it has ended its outcome and the digest of the response that completed it. Expires ten minutes after
// the assignment has ended, and a day after its last change.
func (k keys) assignment(id string) string {
	sum := sha256.Sum256([]byte(id))
	return k.prefix + "assignment:" + hex.EncodeToString(sum[:16])
}
