package config

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"
)

// A Watcher loads the settings of a process again when their files change: the
// settings file, the files of secrets, and the definitions of sites and pipelines.
type Watcher struct {
	// Now asks for it at once, with a line in the log also when nothing has
	// changed. Defaults to never.
	Now <-chan struct{}
	// Apply gets the settings of the process with the new values of those that
	// take effect without a restart, and returns what has changed besides them.
	// With an error nothing has changed. Calls follow one another. Required.
	Apply func(Config) (changed []string, err error)
	// Logger gets a line for each time that the settings are loaded. Required.
	Logger *slog.Logger

	every time.Duration // between two looks at the files; 0 means watchEvery
}

// Watched reports whether the settings can be loaded again.
func (l *Loaded) Watched() bool { return l.files != nil }

// Run watches the files from which running was loaded, until ctx is done.
// Settings that are invalid change nothing: they are logged once, and loaded
// again when a file changes. Running must be Watched.
func (w Watcher) Run(ctx context.Context, running *Loaded) {
	inForce, read, src := running.Config, running.read, running.src
	src.again = true
	watch(ctx, cmp.Or(w.every, watchEvery), w.Now, running.files, running.paths(), func(asked bool) (files, []string) {
		l, err := loadAll(src)
		var merged Config
		var more []string
		if err == nil {
			merged = inForce.withReloaded(l.Config)
			l.files.look(merged.folders()...)
			more, err = w.Apply(merged)
		}
		if err != nil {
			w.Logger.Error("nothing was reloaded: the settings in force stay", "err", err)
			return l.files, l.paths()
		}
		changed, restart := differences(read, l.Config)
		inForce = merged
		read = read.withReloaded(l.Config)
		w.log(asked, strings.Join(append(changed, more...), "; "), strings.Join(restart, ", "))
		return l.files, l.paths()
	})
}

// log logs what was loaded.
func (w Watcher) log(asked bool, changed, restart string) {
	switch {
	case changed != "" && restart != "":
		w.Logger.Warn("reloaded; some changes need a restart", "changed", changed, "needs_restart", restart)
	case restart != "":
		w.Logger.Warn("reloaded: what has changed needs a restart", "needs_restart", restart)
	case changed != "":
		w.Logger.Info("reloaded", "changed", changed)
	case asked:
		w.Logger.Info("reloaded: nothing has changed")
	default:
		w.Logger.Info("reloaded: files were written, and nothing has changed")
	}
}

// withReloaded returns c with the values of by that take effect without a restart.
func (c Config) withReloaded(by Config) Config {
	from := settings(&by)
	for i, s := range settings(&c) {
		if s.reloads() {
			s.v.Set(from[i].v)
		}
	}
	return c
}

// differences describes the settings whose values differ, secrets masked: those
// that take effect without a restart, and the paths of those that need one.
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

// folders are the folders whose definitions are loaded with the settings.
func (c Config) folders() []string { return []string{c.Definitions(), c.Pipelines()} }

// paths are what must be looked at again.
func (l *Loaded) paths() []string {
	paths := slices.Collect(maps.Keys(l.files))
	slices.Sort(paths)
	return paths
}
