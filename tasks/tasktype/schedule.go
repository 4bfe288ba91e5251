package tasktype

import "time"

// ScheduleEntry is an entry of the schedule: when it runs next and ran last, and who sends it.
type ScheduleEntry struct {
	Name     string    `json:"name"`
	Spec     string    `json:"spec"`              // when it runs, as it was added
	Next     time.Time `json:"next,omitzero"`     // the next tick
	Last     time.Time `json:"last,omitzero"`     // the last tick that was sent; zero before the first
	Workflow string    `json:"workflow,omitzero"` // id of what was sent then
	Sent     int64     `json:"sent"`              // ticks that were sent
	Missed   int64     `json:"missed"`            // ticks that were not sent
	Leader   string    `json:"leader,omitzero"`   // name of the scheduler that sends it; empty when none is up
	Error    string    `json:"error,omitzero"`    // why the last tick was not sent; empty if it was
}
