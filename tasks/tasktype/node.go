package tasktype

import (
	"encoding/json"
	"strings"
	"time"
)

// Node is a node of a workflow: a task, or a step that joins the values of others.
type Node struct {
	ID        string    `json:"id"`                 // within its workflow
	Task      string    `json:"task"`               // name of the task; a name in parentheses is a step without one
	Queue     string    `json:"queue,omitempty"`    // empty for a step that no worker runs
	Status    Status    `json:"status"`             // its state
	Attempts  int       `json:"attempts,omitempty"` // so far, with the current one
	Runs      int       `json:"runs,omitempty"`     // calls of its handler, also those after Again and those that ended with their worker
	Worker    string    `json:"worker,omitempty"`   // name of the worker of the last run
	Ready     time.Time `json:"ready,omitzero"`     // when all its dependencies had ended; zero before, and if it can never run
	Scheduled time.Time `json:"scheduled,omitzero"` // when it could run: Ready plus its delay; zero if Ready is
	First     time.Time `json:"first,omitzero"`     // start of the first run; zero before
	Started   time.Time `json:"started,omitzero"`   // start of the last run; zero before the first
	Opened    time.Time `json:"opened,omitzero"`    // when it began to wait for an answer from outside; zero if it never did
	Planned   time.Time `json:"planned,omitzero"`   // when its plan took its place; zero without a plan
	Ended     time.Time `json:"ended,omitzero"`     // when it became terminal; zero before
	Due       time.Time `json:"due,omitzero"`       // end of the current wait for a time or an answer; zero without one
	Failure   *Failure  `json:"failure,omitempty"`  // why it failed or was revoked; nil otherwise
	Message   string    `json:"message,omitempty"`  // of the last attempt that failed
	Waits     string    `json:"waits,omitempty"`    // why no live worker can run it; empty otherwise
	Open      bool      `json:"open,omitempty"`     // whether it waits for an answer from outside
	Done      int       `json:"done,omitempty"`     // progress that its handler reported, of Total
	Total     int       `json:"total,omitempty"`    // 0 if its handler reported none
	Needs     []string  `json:"needs,omitempty"`    // ids of its dependencies: the nodes that must end first
	Within    string    `json:"within,omitempty"`   // id of the map or the planned task that it is a part of
	Side      bool      `json:"side,omitempty"`     // whether the value of the workflow does not need it
}

// Step reports whether the node is a step without a task, which only joins or distributes the values of others.
func (n *Node) Step() bool { return strings.HasPrefix(n.Task, "(") }

// NodeDetail is a node with what Redis has of its input and its attempts.
type NodeDetail struct {
	Node
	Input   json.RawMessage   `json:"input,omitempty"`   // nil if it is not known yet, or is no longer kept
	Tried   []NodeAttempt     `json:"tried,omitempty"`   // the first and the last eleven runs that another one followed
	Headers map[string]string `json:"headers,omitempty"` // of its workflow
}

// NodeAttempt is a run of a node that another run followed.
type NodeAttempt struct {
	Run     int       `json:"run"`              // 1 for the first
	Attempt int       `json:"attempt"`          // 1 for the first; a run after Again or after the death of a worker is the same attempt
	Outcome Outcome   `json:"outcome"`          // OutcomeRetry, OutcomeAgain, OutcomeReturned or OutcomeLost
	Started time.Time `json:"started,omitzero"` // zero if no handler ran
	Ended   time.Time `json:"ended,omitzero"`
	Worker  string    `json:"worker,omitempty"`  // name; empty if it was failed from outside
	Code    string    `json:"code,omitempty"`    // of the failure; empty without one
	Message string    `json:"message,omitempty"` // cut after 300 bytes
}

// ActiveNode is a node in a batch of a worker: it is running, or waits briefly for a node before it.
type ActiveNode struct {
	Workflow string    `json:"workflow"` // id
	Node     string    `json:"node"`     // id within the workflow
	Task     string    `json:"task"`     // name
	Queue    string    `json:"queue"`    // name
	Worker   string    `json:"worker"`   // name
	Started  time.Time `json:"started"`  // when the batch was taken
}

// DueNode is a node that waits for the time of its first or its next attempt.
type DueNode struct {
	Workflow string    `json:"workflow"` // id
	Node     string    `json:"node"`     // id within the workflow
	Task     string    `json:"task"`     // name
	Queue    string    `json:"queue"`    // name
	Status   Status    `json:"status"`   // Pending, or Retry after a failed attempt
	Due      time.Time `json:"due"`      // when it can run
}

// DueCount is the number of tasks of a queue that wait for their time.
type DueCount struct {
	Queue     string // name
	Scheduled int64  // before the first attempt
	Retry     int64  // after a failed attempt
}

// ReservedNode is a node that is ready and that no worker has taken yet.
type ReservedNode struct {
	Workflow string `json:"workflow"` // id
	Node     string `json:"node"`     // id within the workflow
	Task     string `json:"task"`     // name
	Queue    string `json:"queue"`    // name
}
