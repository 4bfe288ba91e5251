package jobs

import (
	"encoding/json"
	"time"
)

// Work is a leased item or stage of a job: the unit that an agent processes. Its fields can be stored, and passed to
// the methods of Service.
type Work struct {
	JobID    string    `json:"job_id"`
	Stage    string    `json:"stage"`
	Role     string    `json:"role"`  // or "task:NAME"
	Takes    string    `json:"takes"` // pipeline.TakesJob or pipeline.TakesItem
	Agent    string    `json:"agent"` // the id that holds it
	Nonce    string    `json:"nonce"` // random part of its lease
	Attempt  int       `json:"attempt"`
	Retried  int       `json:"retried"` // how often the item got new attempts after it had failed
	Fence    int64     `json:"fence"`   // of this lease; a later one of the same item is higher
	Begun    time.Time `json:"begun"`   // when the lease was taken, by the clock of Redis
	Expires  time.Time `json:"lease_until"`
	Deadline time.Time `json:"deadline"` // after which it is given to another; by the clock of Redis
	Key      string    `json:"key"`      // of the item; "" for a stage that takes the job
	Prompt   string    `json:"prompt"`   // its beginning, if PromptSHA256 is set
	// PromptSHA256 is set if the prompt is above MaxInline; Service.Input returns it.
	PromptSHA256 string          `json:"prompt_sha256,omitempty"`
	Context      json.RawMessage `json:"context"` // empty if ContextSHA256 is set
	// ContextSHA256 is set if the context is above MaxInline; Service.Input returns it.
	ContextSHA256 string    `json:"context_sha256,omitempty"`
	Document      *Document `json:"document,omitempty"`
	Item          *Item     `json:"item,omitempty"` // of a stage that takes items

	// Results are the results of earlier stages that took the job, by stage. One above MaxInline is left out.
	Results map[string]json.RawMessage `json:"results,omitempty"`

	// Headers are the headers of the job: its trace, and the id of the request that created it; see package tracing.
	Headers map[string]string `json:"headers,omitempty"`

	// Done means that this lease has completed the work.
	Done bool `json:"done,omitempty"`

	// QueueItem is the id of the work in the queue of the job.
	QueueItem string `json:"queue_item"`
}

// Answer is the result of an agent's work.
type Answer struct {
	// Items are added before the work ends; only by a stage that takes the job.
	Items []Item
	// Verdict is one of the stage's states, as accept or reject; empty means accept.
	Verdict string
	Reason  string // why it was rejected
	// Patch are fields of the item to set, as in an Item in JSON; for a stage that takes the job it is its
	// result, any JSON.
	Patch json.RawMessage
	Usage map[string]int64 // usage of the work, as in {"requests": 2, "tokens": 1500}
}
