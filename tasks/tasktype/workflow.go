package tasktype

import "time"

// Workflow is a workflow in a listing.
type Workflow struct {
	ID      string            `json:"id"`
	Name    string            `json:"name"` // chosen by the sender; else its task or, if there are several, "first → last", at most 60 bytes of each
	Labels  map[string]string `json:"labels,omitempty"`
	Origin  string            `json:"origin,omitempty"` // ID of the workflow that it runs again
	State   WorkflowState     `json:"state"`
	Created time.Time         `json:"created"`        // time when it was sent
	Ended   time.Time         `json:"ended,omitzero"` // zero while it is running
	Paused  bool              `json:"paused"`         // no task begins until it is resumed
	Queued  bool              `json:"queued"`         // no task begins until an earlier workflow with the same unique key has ended
}

// WorkflowEvent is the end of a workflow, or that it was found stuck.
type WorkflowEvent struct {
	Workflow
	Type     string    `json:"type"`     // one of the constants below
	Tasks    string    `json:"tasks"`    // its task or, if there are several, "first → last"
	Time     time.Time `json:"time"`     // when it ended or was found
	Position string    `json:"position"` // in the order of these events, "<unix ms>-<number>"
}

// Types of events of workflows.
const (
	EventSucceeded = "workflow.succeeded"
	EventFailed    = "workflow.failed"
	EventRevoked   = "workflow.revoked"
	EventStuck     = "workflow.stuck" // see tasks.Inspector.FindStuck
)

// WorkflowState is the state of a workflow in a listing.
type WorkflowState string

// States of workflows in a listing.
const (
	WorkflowRunning   WorkflowState = "running" // sent and not completed, even if no worker is running its tasks
	WorkflowSucceeded WorkflowState = "success"
	WorkflowFailed    WorkflowState = "failure"
	WorkflowRevoked   WorkflowState = "revoked"
)

// WorkflowDetail is a workflow with its nodes.
type WorkflowDetail struct {
	Workflow
	Progress Progress `json:"progress"`
	Nodes    []Node   `json:"nodes"` // in the order of the definition
}

// RatePoint counts the completed nodes of a task in a minute or an hour.
type RatePoint struct {
	Time      time.Time     `json:"time"`      // start of the minute or hour
	Queue     string        `json:"queue"`     // name
	Task      string        `json:"task"`      // the first 100 bytes of the name
	Succeeded int64         `json:"succeeded"` // nodes
	Failed    int64         `json:"failed"`    // nodes that failed permanently
	Revoked   int64         `json:"revoked"`   // nodes
	Retried   int64         `json:"retried"`   // failed attempts that are retried
	Busy      time.Duration `json:"busy_ns"`   // total run time of handlers
}
