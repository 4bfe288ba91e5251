package webhook

import (
	"encoding/json"
	"testing"

	"github.com/redis/go-redis/v9"
)

// FuzzEntry wants an entry of the stream of events to be a message that can be sent, or an error.
func FuzzEntry(f *testing.F) {
	f.Add("1-0", "job.completed", "1700000000000", "job", `{"a":1}`)
	f.Add("", "x", "y", "", "{")
	f.Add("1", "x", "9223372036854775807", "", "\xff")
	f.Fuzz(func(t *testing.T, id, kind, at, job, data string) {
		e, err := parseEntry(redis.XMessage{ID: id, Values: map[string]any{"type": kind, "at": at, "job": job, "data": data}})
		if err != nil {
			if len(err.Error()) > 2000 {
				t.Errorf("an error of %d bytes", len(err.Error()))
			}
			return
		}
		if _, err := json.Marshal(e.msg); err != nil {
			t.Errorf("%q at %q cannot be sent: %v", id, at, err)
		}
	})
}
