package store

import (
	"embed"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"
)

//go:embed lua/*.lua
var sources embed.FS

// Scripts holds the scripts by name.
type Scripts map[string]*redis.Script

// shardScripts returns, for each script that works on a shard, the files in front of it.
func shardScripts() map[string][]string {
	ofShard, ofLease := []string{"lib"}, []string{"lib", "remember", "giveback"}
	ofIndex, ofSignals, ofLimit, ofWaiting := []string{"lib", "index"}, []string{"lib", "firstopen"}, []string{"lib", "places"}, []string{"lib", "wake"}
	return map[string][]string{
		"turn": {"lib", "remember", "giveback", "index", "flow"}, "take": {"lib", "nochanges"}, "submit": {"lib", "holder", "index", "flow"}, "retry": {"lib", "index", "flow"}, "abort": ofIndex, "tally": ofIndex,
		"piece": {"lib", "holder"}, "inputs": ofShard, "due": ofWaiting, "schedule": {"lib", "arrange"}, "tick": {"lib", "arrange", "nosubmit"}, "fire": {"lib", "arrange", "holder", "index", "flow", "submit"}, "hasten": ofWaiting, "look": ofShard, "stuck": ofShard, "hold": ofShard, "reap": ofLease, "putback": ofShard, "adopt": ofShard,
		"log": ofShard, "order": ofShard, "revoke": ofShard, "cancel": {"lib", "unpark"}, "pause": {"lib", "unpark"}, "withdraw": ofShard, "progress": ofShard, "token": ofShard, "signal": ofSignals, "signalled": ofSignals, "opened": ofShard, "scheduled": ofShard, "forget": ofShard, "drop": ofShard,
		"acquire": ofLimit, "pass": ofLimit, "renew": ofShard, "limit": ofShard,
		"unhandled": ofShard, "clock": ofShard, "note": ofShard,
	}
}

// NewScripts reads the scripts. Each file goes through rewrite, if that is not nil.
func NewScripts(rewrite func(name, source string) string) Scripts {
	files := map[string]string{} // that source has read
	source := func(name string) string {
		if text, ok := files[name]; ok {
			return text
		}
		text := source(name)
		if rewrite != nil {
			text = rewrite(name, text)
		}
		files[name] = WithConstants(text)
		return files[name]
	}
	all := Scripts{}
	for _, name := range []string{"beat", "remove", "claim", "project", "submit1", "finish1", "step", "emit"} { // they use separate keys, or need no part
		all[name] = redis.NewScript(source(name))
	}
	for name, parts := range shardScripts() {
		var b strings.Builder
		for _, p := range parts {
			if p == "submit" { // another script calls it
				b.WriteString("local function submit()\n" + source(p) + "end\n")
			} else {
				b.WriteString(source(p))
			}
		}
		switch name {
		case "take":
			b.WriteString(source("turn"))
		case "fire":
			b.WriteString(source("tick"))
		default:
			b.WriteString(source(name))
		}
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

// plain returns the scripts without changes. Programs that run none do not build them.
var plain = sync.OnceValue(func() Scripts { return NewScripts(nil) })

// ScriptName returns the name of the script with a SHA1, or "". It is for tests that look at calls to Redis.
func ScriptName(sha string) string {
	for name, script := range plain() {
		if script.Hash() == sha {
			return name
		}
	}
	return ""
}
