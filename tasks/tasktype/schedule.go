package tasktype

import "time"

// ScheduleEntry is an entry of the schedule: its next and last ticks, and which scheduler leads it.
type ScheduleEntry struct {
	Name     string    `json:"name"`
	Spec     string    `json:"spec"`              // the times, as they were added
	Next     time.Time `json:"next,omitzero"`     // the next tick
	Last     time.Time `json:"last,omitzero"`     // the last tick that was sent; zero before the first
	Workflow string    `json:"workflow,omitzero"` // id of the workflow sent at the last tick
	Sent     int64     `json:"sent"`              // ticks that were sent
	Missed   int64     `json:"missed"`            // ticks that were not sent
	Leader   string    `json:"leader,omitzero"`   // name of the scheduler that leads it; empty if none is running
	Error    string    `json:"error,omitzero"`    // why the last tick was not sent; empty if it was
}
