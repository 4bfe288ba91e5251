package jobs

import (
	"crypto/sha256"
	"encoding/hex"
	"time"
)

// prefix begins all keys of jobs. They share a slot, so that one script can
// change them together.
const prefix = "muster:{jobs}:"

// recordKey is the hash of a job; see get.go for its fields. Deleted with the job.
func recordKey(id string) string { return prefix + "j:" + id }

// usageKey is a hash of the usage of a job: "<agent> <name>" → number; the name "assignments" counts those completed. Deleted with
// the job.
func usageKey(id string) string { return prefix + "u:" + id }

// promptKey is a string: the prompt of a job, if it is above MaxInline. Deleted with the job.
func promptKey(id string) string { return prefix + "prompt:" + id }

// largeContextKey is a string: the context of a job, if it is above MaxInline. Deleted with the job.
func largeContextKey(id string) string { return prefix + "ctx:" + id }

// pipelineKey is a hash: the content of a pipeline as JSON in json, and in jobs the number of jobs with this content, by its
// SHA-256. Deleted with the last of them.
func pipelineKey(hash string) string { return prefix + "pipeline:" + hash }

// dependentsKey is a set of the jobs that come after a job. Deleted with the job.
func dependentsKey(id string) string { return prefix + "after:" + id }

// storeKey is a string: the random id of this store of jobs, by which a folder of documents is known to belong to it.
const storeKey = prefix + "store"

// seqKey is a string: the number of the job that was created last.
const seqKey = prefix + "seq"

// allKey is a sorted set of jobs, scored by their numbers, and so are the three below. A job is in them until it is
// deleted.
const allKey = prefix + "all"

func nameKey(name string) string     { return prefix + "name:" + name }
func labelKey(label string) string   { return prefix + "label:" + label }
func statusKey(status Status) string { return statusPrefix + string(status) }

const statusPrefix = prefix + "status:"

// contextKey is the same for a declared key of the context with a value. The value is hashed: it is as long as its
// user likes.
func contextKey(key, value string) string {
	return prefix + "context:" + key + ":" + digest(value)[:32]
}

// dedupeKey is a string: the newest job with this work (a hash of the request). Deleted with that job.
func dedupeKey(work string) string { return prefix + "dedupe:" + work }

// idempotencyKey is a hash of the job that a key made: job, request (a hash of it). Expires after 24 hours.
func idempotencyKey(key string) string { return prefix + "idem:" + digest(key)[:32] }

// documentKey is a set of the jobs that have a document, by its hash. Vanishes with the last.
func documentKey(hash string) string { return prefix + "doc:" + hash }

// dayKey is a hash of the jobs of a day: created and the terminal states → number of jobs. Expires after 40 days.
func dayKey(day time.Time) string { return prefix + "day:" + day.UTC().Format(time.DateOnly) }

// itemsKey is a hash: state of an item → how many there are in all jobs, as each record has counted them;
// stuck: jobs without progress, as the last sweep has seen them.
const itemsKey = prefix + "items"

// reviewsKey is a sorted set of the jobs with items that wait for a decision, by when the first of these was noticed (unix
// ms). A job whose items were all decided on stays in it until a sweep or its end.
const reviewsKey = prefix + "reviews"

// endedKey is a sorted set of the jobs that have ended in a state, by when (unix ms). A job is in it until it
// is deleted.
func endedKey(status Status) string { return endedPrefix + string(status) }

const endedPrefix = prefix + "ended:"

// todoKey is a sorted set of jobs, by when they must be advanced (unix ms): start times, jobs whose dependencies have ended, and steps that a process that died has left undone.
const todoKey = prefix + "todo"

// readyKey is a sorted set of the jobs that may have work for a role or Go task, by their rank: the unix ms of their last
// turn, or of their creation, minus a minute for each point of priority.
func readyKey(worker string) string { return prefix + "ready:" + worker }

// dueKey is a sorted set of the jobs that will have work for a role or Go task, by when (unix ms).
func dueKey(worker string) string { return prefix + "due:" + worker }

// sweepKey is a string: the process that sweeps. Expires after two sweeps.
const sweepKey = prefix + "sweep"

// wakeKey is a list with one token while there may be work for a role or Go task that no process looks for, or to interrupt a
// process that waits ("process:ID"). Expires after an hour.
func wakeKey(worker string) string { return prefix + "wake:" + worker }

// queueName is the name of the work queue of a job.
func queueName(id string) string { return "job:" + id }

// digest returns the SHA-256 of s in hexadecimal.
func digest(s string) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:])
}
