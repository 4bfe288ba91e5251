// Package tasktype has the structs that describe tasks: what is known about nodes, workers and workflows.
package tasktype

import (
	"encoding/json"
	"time"
)

// OpenToken is a node that waits for an answer from outside. It has no token in it: whoever is to answer has one made.
type OpenToken struct {
	Workflow string          `json:"workflow"`
	Node     string          `json:"node"`
	Task     string          `json:"task"`
	Input    json.RawMessage `json:"input"`
	Attempt  int             `json:"attempt"` // 1 for the first
	Opened   time.Time       `json:"opened"`  // when it began to wait
	Deadline time.Time       `json:"deadline,omitzero"`
}
