package agent

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"muster/internal/clip"
	"muster/jobs"
	"muster/jobs/pipeline"
)

// Reply is the result of an assignment in JSON: the response to a push, the result of a Go task, and the body of the calls
// complete and fail.
type Reply struct {
	Verdict string           `json:"verdict,omitempty"`
	Reason  string           `json:"reason,omitempty"`
	Items   []jobs.NewItem   `json:"items,omitempty"`
	Item    json.RawMessage  `json:"item,omitempty"`   // fields to set in the item
	Result  json.RawMessage  `json:"result,omitempty"` // of a stage that takes the whole job
	Usage   map[string]int64 `json:"usage,omitempty"`

	Error             string   `json:"error,omitempty"` // set if the work failed
	RetryAfterSeconds *float64 `json:"retry_after_seconds,omitempty"`
	Permanent         bool     `json:"permanent,omitempty"`
}

// ParseReply decodes a Reply. The error for any other data contains its first 200 bytes.
func ParseReply(raw []byte) (Reply, error) {
	var r Reply
	raw = bytes.TrimSpace(raw)
	if len(raw) == 0 {
		return r, errors.New("empty result; it must be JSON, such as {}")
	}
	if raw[0] != '{' || !json.Valid(raw) {
		return r, fmt.Errorf("the result is not a JSON object: %s", beginning(raw))
	}
	if err := json.Unmarshal(raw, &r); err != nil {
		var wrong *json.UnmarshalTypeError
		if errors.As(err, &wrong) {
			return r, fmt.Errorf("invalid value in the result: %s cannot be a %s", wrong.Field, wrong.Value)
		}
		return r, fmt.Errorf("invalid result: %w", err)
	}
	return r, nil
}

// beginning returns the printable part of the first 200 bytes of a response.
func beginning(raw []byte) string {
	return clip.Clean(clip.Bytes(string(raw[:min(len(raw), 200)]), 200), 200)
}

// Answer returns the result for a stage that takes the job or items.
func (r Reply) Answer(takes string) jobs.Answer {
	a := jobs.Answer{Items: r.Items, Verdict: r.Verdict, Reason: r.Reason, Patch: r.Item, Usage: r.Usage}
	if takes == pipeline.TakesJob {
		a.Patch = r.Result
	}
	return a
}

// After returns the delay of the retry, or nil for the back-off of the stage.
func (r Reply) After() *time.Duration {
	if r.RetryAfterSeconds == nil {
		return nil
	}
	seconds := min(max(*r.RetryAfterSeconds, -1), maxRetryAfter.Seconds()+1)
	d := time.Duration(seconds * float64(time.Second))
	return &d
}
