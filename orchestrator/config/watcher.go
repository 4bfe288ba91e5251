package config

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"slices"
	"strings"
	"time"
)

// A Watcher reloads the settings of a process when their files change: the settings file, secret files, and the definitions of
// sites and pipelines.
type Watcher struct {
	// Now triggers an immediate reload, which is logged even if nothing has changed. Optional.
	Now <-chan os.Signal
	// Apply receives the current settings with the new values of reloadable settings, and returns other changes. If it
	// returns an error, it has changed nothing. Calls do not overlap. Required.
	Apply func(Config) (changed []string, err error)
	// Logger logs each reload. Required.
	Logger *slog.Logger

	every time.Duration // polling interval; 0 means watchEvery
}

// Watched reports whether the settings can be reloaded.
func (l *Loaded) Watched() bool { return l.files != nil }

// Run watches the files from which running was loaded, until ctx is done. Invalid settings are logged once and change nothing,
// until a file changes again. running must be Watched.
func (w Watcher) Run(ctx context.Context, running *Loaded) {
	current, read, src := running.Config, running.read, running.src
	src.again = true
	watch(ctx, cmp.Or(w.every, watchEvery), w.Now, running.files, running.paths(), func(asked bool) (files, []string) {
		l, err := loadAll(src)
		var merged Config
		var more []string
		if err == nil {
			merged = current.withReloaded(l.Config)
			l.files.look(merged.folders()...)
			more, err = w.Apply(merged)
		}
		if err != nil {
			w.Logger.Error("reload failed; the current settings remain in effect", "err", err)
			return l.files, l.paths()
		}
		changed, restart := differences(read, l.Config)
		current = merged
		read = read.withReloaded(l.Config)
		w.log(asked, strings.Join(append(changed, more...), "; "), strings.Join(restart, ", "))
		return l.files, l.paths()
	})
}

// log logs the result of a reload.
func (w Watcher) log(asked bool, changed, restart string) {
	switch {
	case changed != "" && restart != "":
		w.Logger.Warn("reloaded; some changes need a restart", "changed", changed, "needs_restart", restart)
	case restart != "":
		w.Logger.Warn("reloaded; the changes need a restart", "needs_restart", restart)
	case changed != "":
		w.Logger.Info("reloaded", "changed", changed)
	case asked:
		w.Logger.Info("reloaded; no changes")
	default:
		w.Logger.Info("reloaded modified files; no changes")
	}
}

// withReloaded returns c with the reloadable values of by.
func (c Config) withReloaded(by Config) Config {
	from := settings(&by)
	for i, s := range settings(&c) {
		if s.reloads() {
			s.v.Set(from[i].v)
		}
	}
	return c
}

// differences describes the changed settings, with secrets masked: the reloadable ones, and the paths of settings that require
// a restart.
func differences(old, new Config) (changed, restart []string) {
	is := settings(&new)
	for i, was := range settings(&old) {
		s := is[i]
		switch {
		case was.text() == s.text():
		case !s.reloads():
			restart = append(restart, s.path)
		case s.secret():
			changed = append(changed, s.path)
		default:
			changed = append(changed, fmt.Sprintf("%s: %v → %v", s.path, was.shown(), s.shown()))
		}
	}
	return changed, restart
}

// folders returns the directories of definitions that are loaded with the settings.
func (c Config) folders() []string { return []string{c.Definitions(), c.Pipelines()} }

// paths returns the paths to watch.
func (l *Loaded) paths() []string {
	paths := slices.Collect(maps.Keys(l.files))
	slices.Sort(paths)
	return paths
}
