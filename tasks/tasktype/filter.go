package tasktype

import (
	"fmt"
	"strings"
	"time"
)

// WorkflowFilter selects the workflows that tasks.Client.Workflows lists. The zero value selects all.
//
// The time of a workflow is its end or, while it is running, the time when it was sent.
type WorkflowFilter struct {
	State    WorkflowState     // empty: all
	Name     string            // the whole name, or the name of the first or last task; empty: all
	Contains string            // a substring of the name or of the names of these tasks, case-insensitive; empty: all
	Labels   map[string]string // labels with their values, all of which the workflow must have; empty: all
	Origin   string            // ID of the workflow that they run again; empty: all
	After    time.Time         // the earliest time, inclusive; zero: no limit
	Before   time.Time         // the latest time, exclusive; zero: no limit
	Cursor   string            // cursor returned with the previous page; empty: the first page
	Limit    int               // workflows per page, at most 1,000; 0 means 100
}

// ParseLabels returns the labels in texts of the form KEY=VALUE; nil if there are none.
func ParseLabels(texts []string) (map[string]string, error) {
	var labels map[string]string
	for _, text := range texts {
		key, value, ok := strings.Cut(text, "=")
		if !ok || key == "" {
			return nil, fmt.Errorf("label %.50q must be KEY=VALUE", text)
		}
		if labels == nil {
			labels = map[string]string{}
		}
		labels[key] = value
	}
	return labels, nil
}

// RateFilter selects the counts that tasks.Client.Rates returns. The zero value selects all tasks, by minute.
type RateFilter struct {
	Queue string        // empty: all
	Task  string        // empty: all
	Since time.Time     // starts with the minute or hour of this time; zero: all retained counts
	Until time.Time     // ends with the minute or hour of this time; zero: now
	Step  time.Duration // [time.Minute] or [time.Hour]; 0 means a minute
}

// DurationFilter selects the durations that tasks.Client.Durations returns. The zero value selects all tasks in the
// last 24 hours.
type DurationFilter struct {
	Queue string    // empty: all
	Task  string    // empty: all
	Since time.Time // starts with the hour of this time; zero: all retained durations
}
