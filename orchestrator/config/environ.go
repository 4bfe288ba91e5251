package config

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"time"
)

// Environ returns the environment from which Load makes the same settings, for
// a child process. It holds secrets.
func (c Config) Environ() []string {
	// No file adds to it, neither the parent's nor one where the child begins.
	env := []string{"MUSTER_CONFIG=" + os.DevNull}
	for _, s := range settings(&c) {
		if text := s.text(); text != "" {
			env = append(env, envName(s.path)+"="+text)
			if s.tag.Get("secret") != "" { // which ours may have come from
				env = append(env, envName(s.path)+"_FILE=")
			}
		}
	}
	return env
}

// text is what set reads the setting's value from.
func (s setting) text() string {
	switch v := s.v.Interface().(type) {
	case time.Duration:
		return v.String()
	case []string:
		return strings.Join(v, ",")
	case []Source:
		return sourcesText(v)
	case []Agent:
		return agentsText(v)
	case []Webhook:
		return webhooksText(v)
	case map[string]int:
		return pairs(v, ",", ":")
	case map[string]time.Duration:
		return pairs(v, ",", ":")
	case map[string]string:
		return pairs(v, ";", "=")
	default:
		return fmt.Sprint(v)
	}
}

func pairs[V any](m map[string]V, sep, is string) string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(m)) {
		parts = append(parts, fmt.Sprint(name, is, m[name]))
	}
	return strings.Join(parts, sep)
}
