package webhook

import (
	"bytes"
	"encoding/json"
	"fmt"
	"time"
)

const (
	maxBody = 256 << 10 // bytes of a message
	maxData = 64 << 10  // bytes of the details of an event, and of what is said of its job
)

// Message is the body of a request, as Standard Webhooks recommends.
type Message struct {
	Type      string    `json:"type"`
	Timestamp time.Time `json:"timestamp"` // of the event
	Data      Data      `json:"data"`
}

// Data is what happened.
type Data struct {
	EventID string          `json:"event_id"`         // of the event in the streams of events; the webhook-id
	JobID   string          `json:"job_id,omitempty"` // "" if the event belongs to no job
	Details json.RawMessage `json:"details,omitempty"`
	Job     json.RawMessage `json:"job,omitempty"` // how the job was when the message was made; absent if there is none
	// Omitted says that details or job were too large to be sent; ask for them.
	Omitted bool `json:"omitted,omitempty"`
}

// encode returns the message as JSON, small enough to be sent.
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
		return nil, fmt.Errorf("encode a message: %w", err)
	}
	return bytes.TrimRight(b.Bytes(), "\n"), nil
}
