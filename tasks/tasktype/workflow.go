package tasktype

import "time"

// Workflow is a workflow in a listing.
type Workflow struct {
	ID      string        `json:"id"`
	Name    string        `json:"name"`           // at most 64 bytes of it
	State   WorkflowState `json:"state"`          // whether it has ended, and how
	Created time.Time     `json:"created"`        // when it was sent
	Ended   time.Time     `json:"ended,omitzero"` // zero while it is running
}

// WorkflowState is whether a workflow in a listing has ended, and how.
type WorkflowState string

// The states of a workflow in a listing.
const (
	WorkflowRunning   WorkflowState = "running" // sent and not ended, whether or not a worker is at it
	WorkflowSucceeded WorkflowState = "success"
	WorkflowFailed    WorkflowState = "failure"
	WorkflowRevoked   WorkflowState = "revoked"
)

// RatePoint counts how the nodes of a task ended in a minute or an hour.
type RatePoint struct {
	Time      time.Time     `json:"time"`      // when the minute or hour began
	Queue     string        `json:"queue"`     // name
	Task      string        `json:"task"`      // at most 100 bytes of the name
	Succeeded int64         `json:"succeeded"` // nodes
	Failed    int64         `json:"failed"`    // nodes, for good
	Revoked   int64         `json:"revoked"`   // nodes
	Retried   int64         `json:"retried"`   // attempts that failed, with another to follow
	Busy      time.Duration `json:"busy_ns"`   // how long handlers ran, added up
}
