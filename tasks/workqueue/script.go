package workqueue

import (
	"context"
	"embed"
	"fmt"
	"strings"

	"github.com/redis/go-redis/v9"

	"muster/internal/luascript"
)

//go:embed lua/*.lua
var sources embed.FS

// scripts are the files of lua by name, each with common.lua in front of it.
var scripts = luascript.Read(sources)

// store runs the scripts of one queue.
type store struct {
	rdb  redis.UniversalClient
	name string // of the queue
	keys keys
	err  error // of a bad name or config, returned by every call
}

// run runs a script, by the name of its file, on the queue's keys.
func (s *store) run(ctx context.Context, doing, script string, args ...any) (any, error) {
	if s.err != nil {
		return nil, s.err
	}
	v, err := scripts[script].Run(ctx, s.rdb, s.keys.all(), args...).Result()
	if err == nil {
		return v, nil
	}
	if strings.Contains(err.Error(), "WQNEWER") {
		err = ErrNewer
	}
	if strings.HasPrefix(err.Error(), "OOM ") {
		err = fmt.Errorf("%w (%w)", ErrFull, err)
	}
	return nil, fmt.Errorf("%s in queue %s: %w", doing, s.name, err)
}

// ints runs a script that returns a list of numbers.
func (s *store) ints(ctx context.Context, doing, script string, args ...any) ([]int64, error) {
	v, err := s.run(ctx, doing, script, args...)
	if err != nil {
		return nil, err
	}
	list, _ := v.([]any)
	out := make([]int64, len(list))
	for i, x := range list {
		out[i] = toInt(x)
	}
	return out, nil
}

// toInt reads a number of a script's reply.
func toInt(v any) int64 {
	n, _ := v.(int64)
	return n
}

// toString reads a string of a script's reply.
func toString(v any) string {
	s, _ := v.(string)
	return s
}

// anys turns strings into script arguments.
func anys(ss []string) []any {
	out := make([]any, len(ss))
	for i, s := range ss {
		out[i] = s
	}
	return out
}
