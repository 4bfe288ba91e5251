package sim

import (
	"regexp"
	"strings"
	"sync"
	"testing"

	"muster/internal/testutil"
	"muster/tasks/internal/store"
)

// clockKey is the hash with the time of the history, which scripts use as the time.
const clockKey = "sim:clock"

// timeOfHistory takes the place of a call of TIME. As in Redis, no two scripts run in the same microsecond.
const timeOfHistory = "(redis.call('HINCRBY', '" + clockKey + "', 'us', 1) and redis.call('HMGET', '" + clockKey + "', 's', 'us'))"

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
	built func() store.Scripts
	names func() map[string]string // of scripts, by their SHA-1
}

// newScripts returns the scripts, in which change plants a bug if it is not nil.
func newScripts(change func(name, source string) string) *scripts {
	s := &scripts{}
	s.built = sync.OnceValue(func() store.Scripts {
		return store.NewScripts(func(name, source string) string {
			if change != nil {
				source = change(name, source)
			}
			return strings.ReplaceAll(source, "redis.call('TIME')", timeOfHistory)
		})
	})
	s.names = sync.OnceValue(func() map[string]string {
		names := map[string]string{}
		for name, script := range s.built() {
			names[script.Hash()] = name
		}
		return names
	})
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

// load loads all scripts into Redis: otherwise the first history would have calls that the others do not have.
func (s *scripts) load(t *testing.T, l *link) {
	t.Helper()
	for _, script := range s.built() {
		testutil.Ok(t, script.Load(t.Context(), l.rdb).Err())
	}
}

// name returns the name of the script that a command calls, or "".
func (s *scripts) name(of string) string { return s.names()[of] }
