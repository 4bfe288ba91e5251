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

// Keys returns the streams that an event of a job is added to.
func Keys(job string) []string { return []string{AllKey(), JobKey(job), RelayedKey()} }

// remembered is how long an event that is added once is remembered.
const remembered = 7 * 24 * time.Hour

// Add adds an event that belongs to no script of jobs, to the stream of all, and returns its id. The job may be "". Data is
// encoded as JSON. With a name in once, a second event of the same name within a week is not added.
func (s *Stream) Add(ctx context.Context, eventType, job, once string, data any) (id string, err error) {
	raw, err := json.Marshal(data)
	if err != nil {
		return "", fmt.Errorf("encode the event %s: %w", eventType, err)
	}
	keys := []string{AllKey(), RelayedKey(), AllKey()}
	if once != "" {
		keys[2] = onceKey(eventType + " " + once)
	}
	id, err = scripts["add"].Run(ctx, s.rdb, keys, eventType, job, raw, remembered.Milliseconds()).Text()
	if err != nil {
		return "", fmt.Errorf("add the event %s: %w", eventType, err)
	}
	return id, nil
}
