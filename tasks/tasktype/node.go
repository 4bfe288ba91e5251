package tasktype

import (
	"encoding/json"
	"strings"
	"time"
)

// A Node is a node of a workflow: a task, or a step that joins values.
type Node struct {
	ID        string    `json:"id"`              // ID within the workflow
	Task      string    `json:"task"`            // task name; a name in parentheses denotes a step without a task
	Queue     string    `json:"queue,omitempty"` // empty for a step, which no worker runs
	Status    Status    `json:"status"`
	Attempts  int       `json:"attempts,omitempty"` // number of attempts, including the current one
	Runs      int       `json:"runs,omitempty"`     // calls of the handler, including calls after Again and calls lost with their worker
	Worker    string    `json:"worker,omitempty"`   // name of the last worker
	Ready     time.Time `json:"ready,omitzero"`     // time when all dependencies had completed; zero before, or if the node can never run
	Scheduled time.Time `json:"scheduled,omitzero"` // earliest start: Ready plus the delay; zero if Ready is zero
	First     time.Time `json:"first,omitzero"`     // start of the first run; zero before
	Started   time.Time `json:"started,omitzero"`   // start of the last run; zero before the first
	Opened    time.Time `json:"opened,omitzero"`    // time when it started to wait for external completion; zero otherwise
	Planned   time.Time `json:"planned,omitzero"`   // time when its plan replaced it; zero without a plan
	Ended     time.Time `json:"ended,omitzero"`     // time when it reached a terminal state; zero before
	Due       time.Time `json:"due,omitzero"`       // end of the current delay, or deadline of external completion; zero without one
	Failure   *Failure  `json:"failure,omitempty"`  // reason of a failure or revocation; nil otherwise
	Message   string    `json:"message,omitempty"`  // error message of the last failed attempt
	Waits     string    `json:"waits,omitempty"`    // why it waits although its dependencies have completed, or that its worker is lost; empty otherwise
	Open      bool      `json:"open,omitempty"`     // whether it waits for external completion
	Done      int       `json:"done,omitempty"`     // progress reported by the handler, out of Total
	Total     int       `json:"total,omitempty"`    // 0 if the handler reported no progress
	Needs     []string  `json:"needs,omitempty"`    // IDs of its dependencies
	Within    string    `json:"within,omitempty"`   // ID of the map or planned task that contains it
	Side      bool      `json:"side,omitempty"`     // whether the value of the workflow does not depend on it
}

// Step reports whether the node is a step without a task, which only joins or distributes values.
func (n *Node) Step() bool { return strings.HasPrefix(n.Task, "(") }

// NodeDetail is a node with its input and attempts, as far as they are retained.
type NodeDetail struct {
	Node
	Input   json.RawMessage   `json:"input,omitempty"`   // nil if it is unknown or no longer retained
	Tried   []NodeAttempt     `json:"tried,omitempty"`   // the first run and the last eleven runs that were followed by another run
	Headers map[string]string `json:"headers,omitempty"` // headers of the workflow
	Choices []Choice          `json:"choices,omitempty"` // declared results, while it waits for external completion
	Steps   []Step            `json:"steps,omitempty"`   // stored steps of the handler, in the order in which they were stored
	Saved   *Step             `json:"saved,omitempty"`   // its saved value, without a name; nil for none
	Output  []Chunk           `json:"output,omitempty"`  // kept output of the handler
}

// Step is a stored step of a handler; see tasks.Step.
type Step struct {
	Name    string          `json:"name"`
	Started time.Time       `json:"started_at"`
	Took    time.Duration   `json:"took_ns"`
	Value   json.RawMessage `json:"value"`
}

// NodeAttempt is a run of a node that was followed by another run.
type NodeAttempt struct {
	Run     int       `json:"run"`              // 1 for the first
	Attempt int       `json:"attempt"`          // 1 for the first; runs after Again or the death of a worker belong to the same attempt
	Outcome Outcome   `json:"outcome"`          // OutcomeRetry, OutcomeAgain, OutcomeReturned or OutcomeLost
	Started time.Time `json:"started,omitzero"` // zero if the handler was not called
	Ended   time.Time `json:"ended,omitzero"`
	Worker  string    `json:"worker,omitempty"`  // name; empty if an external completion failed the attempt
	Code    string    `json:"code,omitempty"`    // failure code; empty without a failure
	Message string    `json:"message,omitempty"` // truncated to 300 bytes
}

// ActiveNode is a node that a worker has. It is running, or waits briefly for a slot.
type ActiveNode struct {
	Workflow string    `json:"workflow"` // id
	Node     string    `json:"node"`     // id within the workflow
	Task     string    `json:"task"`     // name
	Queue    string    `json:"queue"`    // name
	Worker   string    `json:"worker"`   // name
	Started  time.Time `json:"started"`  // time when it was taken
}

// DueNode is a node that waits for the time of its next attempt.
type DueNode struct {
	Workflow string    `json:"workflow"` // id
	Node     string    `json:"node"`     // id within the workflow
	Task     string    `json:"task"`     // name
	Queue    string    `json:"queue"`    // name
	Status   Status    `json:"status"`   // Pending, or Retry after a failed attempt
	Due      time.Time `json:"due"`      // earliest start
}

// DueCount is the number of tasks of a queue that wait for a scheduled time.
type DueCount struct {
	Queue     string // name
	Scheduled int64  // tasks before the first attempt
	Retry     int64  // tasks after a failed attempt
}

// ReservedNode is a ready node in a queue.
type ReservedNode struct {
	Workflow string `json:"workflow"` // id
	Node     string `json:"node"`     // id within the workflow
	Task     string `json:"task"`     // name
	Queue    string `json:"queue"`    // name
}
