package job

import (
	"context"
	"embed"
	"fmt"

	"github.com/redis/go-redis/v9"

	"muster/internal/luascript"
	"muster/orchestrator/event"
)

//go:embed lua/*.lua
var sources embed.FS

// scripts are the files of lua by name, each with the function record of package event, and common.lua, in front of it.
var scripts = luascript.Read(sources, event.Script)

var (
	createScript  = scripts["create"]
	moveScript    = scripts["move"]
	editScript    = scripts["edit"]
	noteScript    = scripts["note"]
	removeScript  = scripts["remove"]
	paceScript    = scripts["pace"]
	claimScript   = scripts["claim"]
	readyScript   = scripts["ready"]
	usageScript   = scripts["usage"]
	doneScript    = scripts["done"]
	dueScript     = scripts["due"]
	laterScript   = scripts["later"]
	finalScript   = scripts["final"]
	tallyScript   = scripts["tally"]
	endingsScript = scripts["endings"]
)

// run runs a script that returns a list.
func (s *store) run(ctx context.Context, doing string, script *redis.Script, keys []string, args ...any) ([]any, error) {
	v, err := script.Run(ctx, s.rdb, keys, args...).Result()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", doing, err)
	}
	list, ok := v.([]any)
	if !ok {
		return []any{v}, nil
	}
	return list, nil
}

func toInt(v any) int64 {
	n, _ := v.(int64)
	return n
}

func toString(v any) string {
	s, _ := v.(string)
	return s
}
