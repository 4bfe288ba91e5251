package tasktype

import "time"

// Workflow is a workflow in a listing.
type Workflow struct {
	ID      string        `json:"id"`
	Name    string        `json:"name"`           // its task or, of several, "first → last"; at most 60 bytes of each
	State   WorkflowState `json:"state"`          // whether it has ended, and how
	Created time.Time     `json:"created"`        // when it was sent
	Ended   time.Time     `json:"ended,omitzero"` // zero while it is running
}

// WorkflowState says whether a workflow in a listing has ended, and how.
type WorkflowState string

// The states of a workflow in a listing.
const (
	WorkflowRunning   WorkflowState = "running" // sent and not ended, even if no worker is running its tasks
	WorkflowSucceeded WorkflowState = "success"
	WorkflowFailed    WorkflowState = "failure"
	WorkflowRevoked   WorkflowState = "revoked"
)

// WorkflowDetail is a workflow with all that is known of it.
type WorkflowDetail struct {
	Workflow
	Progress Progress `json:"progress"`
	Nodes    []Node   `json:"nodes"` // in the order of its definition
}

// RatePoint counts how the nodes of a task ended in a minute or an hour.
type RatePoint struct {
	Time      time.Time     `json:"time"`      // when the minute or hour began
	Queue     string        `json:"queue"`     // name
	Task      string        `json:"task"`      // at most 100 bytes of the name
	Succeeded int64         `json:"succeeded"` // nodes
	Failed    int64         `json:"failed"`    // nodes whose last attempt failed
	Revoked   int64         `json:"revoked"`   // nodes
	Retried   int64         `json:"retried"`   // attempts that failed and are followed by another
	Busy      time.Duration `json:"busy_ns"`   // how long handlers ran, added up
}
