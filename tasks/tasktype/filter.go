package tasktype

import "time"

// WorkflowFilter selects the workflows that tasks.Client.Workflows lists. The zero value selects all.
//
// The time of a workflow is when it ended or, while it is running, when it was sent.
type WorkflowFilter struct {
	State    WorkflowState // empty: any
	Name     string        // the whole name, or that of the first or last task; empty: any
	Contains string        // a part of the name, in any case; empty: any
	After    time.Time     // the earliest time; zero: no bound
	Before   time.Time     // times must be before this one; zero: no bound
	Cursor   string        // next of the page before; empty: the first page
	Limit    int           // workflows in a page, at most 1,000; 0 means 100
}

// RateFilter selects the counts that tasks.Client.Rates returns. The zero value selects all tasks, by minute.
type RateFilter struct {
	Queue string        // empty: all
	Task  string        // empty: all
	Since time.Time     // from the minute or hour of this time on; zero: all that are kept
	Step  time.Duration // [time.Minute], or [time.Hour]; 0 means a minute
}

// DurationFilter selects the durations that tasks.Client.Durations returns. The zero value selects all tasks in the last
// 24 hours.
type DurationFilter struct {
	Queue string    // empty: all
	Task  string    // empty: all
	Since time.Time // from the hour of this time on; zero: all that are kept
}
