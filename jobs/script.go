package jobs

import (
	"context"
	"embed"
	"fmt"

	"github.com/redis/go-redis/v9"

	"muster/internal/luascript"
)

//go:embed lua/*.lua
var sources embed.FS

// Emit adds events to streams in the scripts that change jobs: a change and its event are one step.
type Emit struct {
	// Lua declares the local function record(all, of_job, webhooks, type, job, at, data), which adds an event to the
	// streams that Keys names: at is in unix ms, and data is JSON or "".
	Lua  string
	Keys func(job string) []string // all, of_job, webhooks; in the slot of jobs. The stream of_job is deleted with its job.
}

// scripts returns the files of lua by name, each with the function record and common.lua in front of it.
func (e Emit) scripts() map[string]*redis.Script {
	if e.Lua == "" {
		e.Lua = "local function record() end\n"
	}
	return luascript.Read(sources, e.Lua)
}

// eventKeys returns the streams of the events of a job; without any, its record is used instead.
func (s *Service) eventKeys(id string) []string {
	if s.cfg.Emit.Keys == nil {
		return []string{recordKey(id), recordKey(id), recordKey(id)}
	}
	return s.cfg.Emit.Keys(id)
}

// run runs a script that returns a list.
func (s *Service) run(ctx context.Context, doing, script string, keys []string, args ...any) ([]any, error) {
	v, err := s.scripts[script].Run(ctx, s.rdb, keys, args...).Result()
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
