package tasktype

import (
	"encoding/json"
	"strings"
	"time"
)

// A Node is a node of a workflow: a task, or a step that joins values. The HTTP API has the fields with a name in JSON.
type Node struct {
	ID        string    `json:"id" doc:"ID within the workflow"`
	Task      string    `json:"task" doc:"name of the task; a name in parentheses is a step without a task"`
	Queue     string    `json:"queue,omitempty"` // empty for a step, which no worker runs
	Status    Status    `json:"status"`
	Attempts  int       `json:"attempts,omitempty"` // number of attempts, including the current one
	Worker    string    `json:"worker,omitempty" doc:"last worker"`
	Ready     time.Time `json:"ready_at,omitzero" doc:"when its dependencies had ended"` // zero if the node can never run
	Started   time.Time `json:"started_at,omitzero" doc:"start of the last run"`         // zero before the first
	Opened    time.Time `json:"opened_at,omitzero" doc:"since when it waits for external completion"`
	Ended     time.Time `json:"ended_at,omitzero"` // time when it reached a terminal state
	Due       time.Time `json:"due_at,omitzero" doc:"end of its delay, or deadline of its external completion"`
	Failure   *Failure  `json:"failure,omitempty"` // reason of a failure or revocation
	Message   string    `json:"message,omitempty" doc:"error of the last failed attempt"`
	Waits     string    `json:"waits,omitempty" doc:"why no live worker can run it, or that its worker is lost"`
	Done      int       `json:"done,omitempty" doc:"progress reported by its handler, out of total"`
	Total     int       `json:"total,omitempty"` // 0 if the handler reported no progress
	Needs     []string  `json:"needs,omitempty" doc:"IDs of its dependencies"`
	Within    string    `json:"within,omitempty" doc:"ID of the map or planned task that contains it"`
	Runs      int       `json:"-"` // calls of the handler, including calls after Again and calls lost with their worker
	Scheduled time.Time `json:"-"` // earliest start: Ready plus the delay; zero if Ready is zero
	First     time.Time `json:"-"` // start of the first run; zero before
	Planned   time.Time `json:"-"` // time when its plan replaced it; zero without a plan
	Open      bool      `json:"-"` // whether it waits for external completion
	Side      bool      `json:"-"` // whether the value of the workflow does not depend on it
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

// Task is a node that runs or waits for a worker or its time.
type Task struct {
	Workflow string    `json:"workflow" doc:"ID"`
	Node     string    `json:"node" doc:"ID within the workflow"`
	Task     string    `json:"task"`
	Queue    string    `json:"queue"`
	Status   Status    `json:"status"`
	Worker   string    `json:"worker,omitempty" doc:"that runs it, or will after the tasks it took before"`
	Started  time.Time `json:"started_at,omitzero" doc:"when the worker took it"`
	Due      time.Time `json:"due_at,omitzero" doc:"its earliest start"`
}

// DueCount is the number of tasks of a queue that wait for a scheduled time.
type DueCount struct {
	Queue     string // name
	Scheduled int64  // tasks before the first attempt
	Retry     int64  // tasks after a failed attempt
}
