package store

import (
	"context"
	"embed"
	"fmt"
	"strings"

	"github.com/redis/go-redis/v9"
)

//go:embed lua/*.lua
var sources embed.FS

// The files that are put in front of scripts, by what the scripts need.
var (
	ofShard = []string{"lib"}
	ofIndex = []string{"lib", "index"}
	ofFlow  = []string{"lib", "index", "flow"}
	ofBatch = []string{"lib", "giveback"}
	ofTurn  = []string{"lib", "giveback", "index", "flow"}
)

// preludes has, for each script that works on a shard, the files in front of it.
var preludes = map[string][]string{
	"turn": ofTurn, "submit": ofFlow, "abort": ofIndex,
	"piece": ofShard, "inputs": ofShard, "due": ofShard, "look": ofShard, "bump": ofShard, "reap": ofBatch,
	"enter": ofShard, "revoke": ofShard, "withdraw": ofShard, "progress": ofShard, "token": ofShard,
}

// alone are the scripts that work on keys of their own.
var alone = []string{"found", "beat", "info", "claim", "lead", "tick", "resign", "rate", "project"}

// scripts holds the scripts by name.
type scripts map[string]*redis.Script

// newScripts reads the scripts. Each file goes through rewrite, if that is not nil.
func newScripts(rewrite func(name, source string) string) scripts {
	source := func(name string) string {
		if rewrite == nil {
			return source(name)
		}
		return rewrite(name, source(name))
	}
	all := scripts{}
	for _, name := range alone {
		all[name] = redis.NewScript(source(name))
	}
	for name, parts := range preludes {
		var b strings.Builder
		for _, p := range parts {
			b.WriteString(source(p))
		}
		b.WriteString(source(name))
		all[name] = redis.NewScript(b.String())
	}
	return all
}

// source returns a file of Lua.
func source(name string) string {
	raw, err := sources.ReadFile("lua/" + name + ".lua")
	if err != nil {
		panic(err) // it is embedded
	}
	return string(raw)
}

// compiled are the scripts without changes.
var compiled = newScripts(nil)

// Rewrite changes the source of every script. Call it before anything else. It is for tests that give scripts another
// clock, or a fault.
func (s *Store) Rewrite(f func(name, source string) string) { s.scripts = newScripts(f) }

// ScriptName returns the name of the script with a SHA1, or "". It is for tests that look at calls to Redis.
func ScriptName(sha string) string {
	for name, script := range compiled {
		if script.Hash() == sha {
			return name
		}
	}
	return ""
}

// call runs a script on a shard and returns its answer as a list.
func (s *Store) call(ctx context.Context, name string, shard int, args ...any) ([]any, error) {
	said, err := s.scripts[name].Run(ctx, s.rdb, []string{tag(shard)}, args...).Result()
	if err != nil {
		return nil, err
	}
	if list, ok := said.([]any); ok {
		return list, nil
	}
	return []any{said}, nil
}

// callEach runs a script on every shard in one round trip.
func (s *Store) callEach(ctx context.Context, name string, args ...any) ([][]any, error) {
	n, err := s.Shards(ctx)
	if err != nil {
		return nil, err
	}
	out := make([][]any, n)
	if n == 1 {
		out[0], err = s.call(ctx, name, 0, args...)
		return out, err
	}
	script := s.scripts[name]
	pipe := s.rdb.Pipeline()
	cmds := make([]*redis.Cmd, n)
	for shard := range n {
		cmds[shard] = script.EvalSha(ctx, pipe, []string{tag(shard)}, args...)
	}
	_, _ = pipe.Exec(ctx) // each has its own error
	for shard, c := range cmds {
		switch err := c.Err(); {
		case redis.HasErrorPrefix(err, "NOSCRIPT"):
			if out[shard], err = s.call(ctx, name, shard, args...); err != nil {
				return nil, err
			}
		case err != nil:
			return nil, err
		default:
			var ok bool
			if out[shard], ok = c.Val().([]any); !ok {
				return nil, fmt.Errorf("script %s answered %v", name, c.Val())
			}
		}
	}
	return out, nil
}
