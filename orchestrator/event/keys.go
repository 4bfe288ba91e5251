package event

const prefix = "muster:{jobs}:events"

// AllKey is the key of the stream of the events of all jobs: type, job, at (unix ms), data (JSON or ""). Whoever adds
// an event trims the stream; it does not expire. The braces are the slot of all keys of jobs.
func AllKey() string { return prefix }

// JobKey is the key of the stream of the events of a job. Its entries are those of AllKey, with the same ids. Whoever
// adds an event trims the stream; it is removed with the job.
func JobKey(id string) string { return prefix + ":" + id }
