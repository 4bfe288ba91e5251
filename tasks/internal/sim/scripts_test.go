package sim

import (
	"context"
	"crypto/sha1"
	"encoding/hex"
	"regexp"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"

	"muster/tasks/internal/store"
)

// clockKey is the hash with the time of the history, which scripts use as the time.
const clockKey = "sim:clock"

// timeOfHistory takes the place of a call of TIME. As in Redis, no two scripts run in the same microsecond.
const timeOfHistory = "(redis.call('HINCRBY', '" + clockKey + "', 'us', 1) and redis.call('HMGET', '" + clockKey + "', 's', 'us'))"

// preludes are the files that scripts can begin with.
var preludes = [][]string{nil, {"lib"}, {"lib", "unpark"}, {"lib", "wake"}, {"lib", "index"}, {"lib", "index", "flow"}, {"lib", "remember", "giveback"}, {"lib", "remember", "giveback", "index", "flow"}, {"lib", "holder"}, {"lib", "firstopen"}, {"lib", "places"}, {"lib", "holder", "index", "flow"}}

// limits matches the limits of scripts that random workflows do not reach.
var limits = regexp.MustCompile(`(?m)^(local (MOST_BYTES|MOST_KEYS|MOST_NODES|HIGH_IN_A_ROW) *= *)\d+`)

// tight makes the limits of scripts so small that random workflows reach them.
func tight(_, source string) string {
	return limits.ReplaceAllStringFunc(source, func(s string) string {
		m := limits.FindStringSubmatch(s)
		return m[1] + map[string]string{"MOST_BYTES": "60", "MOST_KEYS": "2", "MOST_NODES": "2", "HIGH_IN_A_ROW": "2"}[m[2]]
	})
}

// scripts are the scripts of histories: they have the time of the history, and a planted bug, if there is one.
type scripts struct {
	change func(name, source string) string // plants a bug; nil for none
	built  func() store.Scripts

	mu    sync.Mutex        // guards the fields below
	files map[string]string // as rewritten, by name
	names map[string]string // of scripts, by their SHA-1
}

func newScripts(change func(name, source string) string) *scripts {
	s := &scripts{change: change, files: map[string]string{}, names: map[string]string{}}
	s.built = sync.OnceValue(func() store.Scripts { return store.NewScripts(s.rewrite) })
	return s
}

// allScripts returns scripts as they are and with tight limits, for histories in turn.
func allScripts(change func(name, source string) string) []*scripts {
	if change == nil {
		change = func(_, source string) string { return source }
	}
	small := func(name, source string) string { return tight(name, change(name, source)) }
	return []*scripts{newScripts(change), newScripts(small)}
}

// rewrite returns a file of a script as a history has it.
func (s *scripts) rewrite(name, source string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if have, ok := s.files[name]; ok {
		return have
	}
	if s.change != nil {
		source = s.change(name, source)
	}
	source = store.WithConstants(strings.ReplaceAll(source, "redis.call('TIME')", timeOfHistory))
	s.files[name] = source
	return source
}

// load loads all scripts into Redis: otherwise the first history would have calls that the others do not have.
func (s *scripts) load(l *link) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for name, source := range s.files {
		for _, before := range preludes {
			text := ""
			for _, file := range before {
				text += s.files[file]
			}
			text += source
			sum := sha1.Sum([]byte(text)) // the name of a script in Redis
			s.names[hex.EncodeToString(sum[:])] = name
			l.do(redis.NewCmd(context.Background(), "script", "load", text)) // rejects a file that is not a complete script
		}
	}
}

// name returns the name of the script that a command calls, or "".
func (s *scripts) name(of string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.names[of]
}
