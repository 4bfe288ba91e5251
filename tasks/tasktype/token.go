package tasktype

import (
	"encoding/json"
	"time"
)

// OpenToken is a node that waits for an answer from outside. It does not have the token; see
// [muster/tasks.Client.NewToken].
type OpenToken struct {
	Workflow string          `json:"workflow"`
	Node     string          `json:"node"`
	Task     string          `json:"task"`
	Input    json.RawMessage `json:"input"`
	Attempt  int             `json:"attempt"`           // 1 for the first
	Opened   time.Time       `json:"opened"`            // when it began to wait
	Deadline time.Time       `json:"deadline,omitzero"` // for the answer; zero if there is none
}

// OpenTask is a task with nodes that wait for an answer from outside.
type OpenTask struct {
	Task string `json:"task"` // at most 100 bytes of the name
	Open int64  `json:"open"` // its nodes that wait
}
