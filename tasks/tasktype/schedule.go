package tasktype

import "time"

// ScheduleEntry is a schedule with its ticks.
type ScheduleEntry struct {
	Name      string            `json:"name"`
	Group     string            `json:"group,omitzero"`     // group of Schedules.Sync that it belongs to
	Spec      string            `json:"spec"`               // times, in UTC unless it begins with CRON_TZ
	Tasks     string            `json:"tasks"`              // its first and last task
	Labels    map[string]string `json:"labels,omitzero"`    // of its workflows
	Next      time.Time         `json:"next,omitzero"`      // time of the next tick
	Last      time.Time         `json:"last,omitzero"`      // time of the last sent tick; zero before the first
	Workflow  string            `json:"workflow,omitzero"`  // ID of the workflow of the last tick
	Sent      int64             `json:"sent"`               // number of sent ticks
	Missed    int64             `json:"missed"`             // number of missed ticks; of one outage, at most 1,000 are counted
	Error     string            `json:"error,omitzero"`     // why the last tick was not sent; empty if it was
	Overlap   string            `json:"overlap,omitzero"`   // policy for overlapping ticks; empty if they are allowed
	CatchUp   int               `json:"catch_up,omitzero"`  // how many missed ticks are sent
	Jitter    time.Duration     `json:"jitter,omitzero"`    // longest random delay of a tick
	Paused    time.Time         `json:"paused,omitzero"`    // since when it is paused; zero if it is not
	Requested int64             `json:"requested,omitzero"` // ticks that were triggered, backfilled or caught up with and not yet sent
}

// ScheduleFilter selects schedules. The zero value selects all.
type ScheduleFilter struct {
	Prefix string            // only schedules whose names begin with it
	Labels map[string]string // only schedules whose workflows have these labels
	Limit  int               // schedules to look at per page, 1 to 1000; defaults to 100
	Cursor string            // of the next page, from the call for the page before it
}
