package webhook

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"muster/internal/clip"
	"slices"
	"strings"
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

// Formats of the body of a request.
const (
	FormatJSON  = "json"  // Message
	FormatText  = "text"  // a line of text, for example for ntfy
	FormatSlack = "slack" // for incoming webhooks of Slack and Mattermost
	FormatTeams = "teams" // for workflows of Microsoft Teams
)

// Formats are all formats.
var Formats = []string{FormatJSON, FormatText, FormatSlack, FormatTeams}

func checkFormat(format string) error {
	if format != "" && !slices.Contains(Formats, format) {
		return bad("format", "%.40q is not one of %s", format, strings.Join(Formats, ", "))
	}
	return nil
}

// line returns the message as one line of text: its type, its job and its short details.
func (m Message) line() string {
	parts := []string{m.Type}
	if m.Data.JobID != "" {
		parts = append(parts, "job "+m.Data.JobID)
	}
	var details map[string]any
	_ = json.Unmarshal(m.Data.Details, &details) // without an object there are none
	for _, name := range slices.Sorted(maps.Keys(details)) {
		switch v := details[name].(type) {
		case string, float64, bool:
			parts = append(parts, clip.Bytes(fmt.Sprintf("%s: %v", name, v), 200))
		}
	}
	return strings.Join(strings.Fields(strings.Join(parts, ", ")), " ")
}

// encode returns the body of a request in a format, of limited size.
func (m Message) encode(format string) ([]byte, error) {
	switch format {
	case FormatText:
		return []byte(m.line()), nil
	case FormatSlack:
		return json.Marshal(map[string]string{"text": m.line()})
	case FormatTeams:
		card := map[string]any{"type": "AdaptiveCard", "version": "1.4", "body": []any{map[string]any{"type": "TextBlock", "wrap": true, "text": m.line()}}}
		return json.Marshal(map[string]any{"type": "message", "attachments": []any{map[string]any{"contentType": "application/vnd.microsoft.card.adaptive", "content": card}}})
	}
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
