package tasktype

import "time"

// AllKeys is the key of a change of a limit for all its keys.
const AllKeys = "*"

// Limit is the state of a limit for a key that tasks wait for, or that was changed.
type Limit struct {
	Limit   string        `json:"limit"`
	Key     string        `json:"key"`              // AllKeys for a change for all keys
	N       int           `json:"n"`                // what it allows now; -1 if only the hold is known
	Per     time.Duration `json:"per_ns,omitempty"` // period of a rate; 0 for a concurrency
	Changed bool          `json:"changed"`          // N was set at run time
	Held    time.Time     `json:"held_until,omitzero"`
	Running int64         `json:"running"` // tasks that run, or have started in the last period
	Waiting int64         `json:"waiting"`
}
