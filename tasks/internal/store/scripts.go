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

// parts are the files in front of a script; one that is not listed has lib. Without any, a call creates no functions.
var parts = map[string][]string{
	"submit1": nil, "finish1": nil, "step": nil, "project": nil,
	"turn": {"lib", "remember", "giveback", "index", "flow"}, "submit": {"lib", "holder", "index", "flow"}, "retry": {"lib", "remember", "unready", "index", "flow"}, "withdraw": {"lib", "unready"},
	"fire": {"lib", "arrange", "holder", "index", "flow", "submit", "tick"}, "tick": {"lib", "arrange"}, "schedule": {"lib", "arrange"},
	"abort": {"lib", "index"}, "adopt": {"lib", "index"}, "tally": {"lib", "index"}, "piece": {"lib", "holder"}, "due": {"lib", "wake"}, "hasten": {"lib", "wake"},
	"reap":    {"lib", "remember", "giveback"},
	"acquire": {"lib", "places"}, "pass": {"lib", "places"},
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
	names := []string{"fire"} // which has no file
	dir, _ := sources.ReadDir("lua")
	for _, f := range dir {
		names = append(names, strings.TrimSuffix(f.Name(), ".lua"))
	}
	for _, name := range names {
		list, listed := parts[name]
		if !listed {
			list = []string{"lib"}
		}
		text := ""
		for _, p := range list {
			if name == "fire" && p == "submit" { // tick calls it
				text += "local function submit()\n" + source(p) + "end\n"
			} else {
				text += source(p)
			}
		}
		if name != "fire" {
			text += source(name)
		}
		all[name] = redis.NewScript(text)
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
