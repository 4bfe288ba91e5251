package tasktype

import "time"

// ScheduleEntry is an entry of the schedule, with its ticks and its scheduler.
type ScheduleEntry struct {
	Name     string    `json:"name"`
	Spec     string    `json:"spec"`              // the time specification
	Next     time.Time `json:"next,omitzero"`     // time of the next tick
	Last     time.Time `json:"last,omitzero"`     // time of the last sent tick; zero before the first
	Workflow string    `json:"workflow,omitzero"` // ID of the workflow of the last tick
	Sent     int64     `json:"sent"`              // number of sent ticks
	Missed   int64     `json:"missed"`            // number of missed ticks
	Leader   string    `json:"leader,omitzero"`   // name of the scheduler that leads the entry; empty if none is running
	Error    string    `json:"error,omitzero"`    // why the last tick was not sent; empty if it was
}
