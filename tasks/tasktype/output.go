package tasktype

import (
	"encoding/json"
	"time"
)

// Chunk is a part of the output of a task; see tasks.Emit.
type Chunk struct {
	Node    string          `json:"node"`
	Attempt int             `json:"attempt"`
	Begin   bool            `json:"begin"`          // first chunk of a run of the handler: a reader may discard the earlier chunks of the node
	Lost    int             `json:"lost,omitempty"` // chunks before this one that were deleted before they were read, because of the limits
	Time    time.Time       `json:"time"`
	Value   json.RawMessage `json:"value"`
}

// Text returns the value of a chunk that is a JSON string, and otherwise its JSON.
func (c Chunk) Text() string {
	var s string
	if json.Unmarshal(c.Value, &s) != nil {
		return string(c.Value)
	}
	return s
}
