package tasktype

import (
	"encoding/json"
	"time"
)

// OpenToken is a node that waits for external completion. It does not contain the token; see
// [muster/tasks.Workflow.NewToken].
type OpenToken struct {
	Workflow string          `json:"workflow"`
	Node     string          `json:"node"`
	Task     string          `json:"task"`
	Input    json.RawMessage `json:"input"`
	Attempt  int             `json:"attempt"`           // 1 for the first
	Opened   time.Time       `json:"opened"`            // time when it started to wait
	Deadline time.Time       `json:"deadline,omitzero"` // deadline of the completion; zero without one
	Choices  []Choice        `json:"choices,omitempty"` // results that its declaration offers
}

// Choice is a declared result of an external task.
type Choice struct {
	Label string          `json:"label"` // such as "Approve"
	Value json.RawMessage `json:"value"` // the result
}

// OpenTask is a task with nodes that wait for external completion.
type OpenTask struct {
	Task string `json:"task"` // the first 100 bytes of the name
	Open int64  `json:"open"` // number of waiting nodes
}
