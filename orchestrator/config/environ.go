package config

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"muster/internal/atomicfile"
)

// Environ returns an environment from which Load in a child process produces the same settings. It contains secrets. Settings
// that are reloadable and not secret are in file, which WriteReloaded writes; if file is "", they are in the environment.
func (c Config) Environ(file string) []string {
	// Neither the parent's settings file nor one in the working directory of the child may add settings.
	env := []string{"MUSTER_CONFIG=" + cmp.Or(file, os.DevNull)}
	for _, s := range settings(&c) {
		text := s.text()
		if file != "" && s.shared() {
			text = "" // masks the variable of the parent
		}
		env = append(env, envName(s.path)+"="+text)
		if s.secret() { // masks the file variable of the parent
			env = append(env, envName(s.path)+"_FILE=")
		}
	}
	return env
}

// shared reports whether a child process reads the setting from its file.
func (s setting) shared() bool { return s.reloads() && !s.secret() }

// WriteReloaded atomically writes the settings that Environ omits to a file that the child process watches.
func (c Config) WriteReloaded(file string) error {
	sections := map[string]map[string]any{}
	for _, s := range settings(&c) {
		if !s.shared() || s.text() == "" {
			continue
		}
		section, name, _ := strings.Cut(s.path, ".")
		if sections[section] == nil {
			sections[section] = map[string]any{}
		}
		switch {
		case s.isList():
			sections[section][name] = s.v.Interface()
		case s.isMap():
			texts := map[string]string{}
			for _, key := range s.v.MapKeys() {
				texts[key.String()] = setting{v: s.v.MapIndex(key)}.text()
			}
			sections[section][name] = texts
		default:
			sections[section][name] = s.text()
		}
	}
	b, err := json.Marshal(sections) // JSON is valid YAML
	if err == nil {
		err = atomicfile.Write(file, 0o600, func(w io.Writer) error {
			_, err := w.Write(b)
			return err
		})
	}
	if err != nil {
		return fmt.Errorf("write the settings of worker processes: %w", err)
	}
	return nil
}

// text returns the value in the format of set.
func (s setting) text() string {
	switch v := s.v.Interface().(type) {
	case time.Duration:
		return v.String()
	case []string:
		return strings.Join(v, ",")
	case map[string]int:
		return pairs(v, ",", ":")
	case map[string]time.Duration:
		return pairs(v, ",", ":")
	case map[string]string:
		return pairs(v, ";", "=")
	default:
		if !s.isObjects() {
			return fmt.Sprint(v)
		}
		if s.v.Len() == 0 {
			return ""
		}
		b, _ := json.Marshal(v) // cannot fail for strings and numbers
		return string(b)
	}
}

func pairs[V any](m map[string]V, sep, is string) string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(m)) {
		parts = append(parts, fmt.Sprint(name, is, m[name]))
	}
	return strings.Join(parts, sep)
}
