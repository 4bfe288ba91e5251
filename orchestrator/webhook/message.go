package webhook

import (
	"bytes"
	"encoding/json"
	"fmt"
	"time"
)

const (
	maxBody = 256 << 10 // bytes of a message
	maxData = 64 << 10  // bytes of the details of an event, and of its job
)

// Message is the body of a request, as Standard Webhooks recommends.
type Message struct {
	Type      string    `json:"type"`
	Timestamp time.Time `json:"timestamp"` // time of the event
	Data      Data      `json:"data"`
}

// Data describes an event.
type Data struct {
	EventID string          `json:"event_id"`         // ID in the event streams; the webhook-id
	JobID   string          `json:"job_id,omitempty"` // "" if the event belongs to no job
	Details json.RawMessage `json:"details,omitempty"`
	Job     json.RawMessage `json:"job,omitempty"` // state of the job when the message was created; absent without a job
	// Omitted means that details or job were too large to be sent. Request them from the API.
	Omitted bool `json:"omitted,omitempty"`
}

// encode returns the message as JSON of limited size.
func (m Message) encode() ([]byte, error) {
	if len(m.Data.Details) > maxData {
		m.Data.Details, m.Data.Omitted = nil, true
	}
	if len(m.Data.Job) > maxData {
		m.Data.Job, m.Data.Omitted = nil, true
	}
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(m); err != nil {
		return nil, fmt.Errorf("encode message: %w", err)
	}
	return bytes.TrimRight(b.Bytes(), "\n"), nil
}
