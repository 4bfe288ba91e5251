package event

import (
	"context"
	"embed"
	"encoding/json"
	"fmt"
	"time"

	"muster/internal/luascript"
)

//go:embed lua/*.lua
var sources embed.FS

var scripts = luascript.Read(sources)

// Lua is the function record(all, of_job, relayed, type, job, at, data), by which scripts of other packages add events in
// the step that makes them true. Keys returns the names of the streams.
//
//go:embed lua/common.lua
var Lua string

// Keys returns the keys of the streams for the events of a job.
func Keys(job string) []string { return []string{AllKey(), JobKey(job), RelayedKey()} }

// remembered is how long an event with a once name blocks its repetition.
const remembered = 7 * 24 * time.Hour

// Add adds an event that no script of jobs records to the stream of all events, and returns its ID. The job may be "". Data is
// encoded as JSON. If once is not "", a second event of that name within a week is not added.
func (s *Stream) Add(ctx context.Context, eventType, job, once string, data any) (id string, err error) {
	raw, err := json.Marshal(data)
	if err != nil {
		return "", fmt.Errorf("encode event %s: %w", eventType, err)
	}
	keys := []string{AllKey(), RelayedKey(), AllKey()}
	if once != "" {
		keys[2] = onceKey(eventType + " " + once)
	}
	id, err = scripts["add"].Run(ctx, s.rdb, keys, eventType, job, raw, remembered.Milliseconds()).Text()
	if err != nil {
		return "", fmt.Errorf("add event %s: %w", eventType, err)
	}
	return id, nil
}
