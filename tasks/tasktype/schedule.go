package tasktype

import "time"

// ScheduleEntry is an entry of the schedule, with its ticks and its scheduler.
type ScheduleEntry struct {
	Name      string    `json:"name"`
	Spec      string    `json:"spec"`               // the time specification, with CRON_TZ unless its times are in UTC
	Next      time.Time `json:"next,omitzero"`      // time of the next tick
	Last      time.Time `json:"last,omitzero"`      // time of the last sent tick; zero before the first
	Workflow  string    `json:"workflow,omitzero"`  // ID of the workflow of the last tick
	Sent      int64     `json:"sent"`               // number of sent ticks
	Missed    int64     `json:"missed"`             // number of missed ticks
	Leader    string    `json:"leader,omitzero"`    // name of the scheduler that leads the entry; empty if none is running
	Error     string    `json:"error,omitzero"`     // why the last tick was not sent; empty if it was
	Overlap   string    `json:"overlap,omitzero"`   // policy for overlapping ticks; empty if they are allowed
	Paused    time.Time `json:"paused,omitzero"`    // since when it is paused; zero if it is not
	Requested int64     `json:"requested,omitzero"` // ticks that were triggered, backfilled or queued and not yet sent
}
