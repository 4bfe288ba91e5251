package config

import (
	"cmp"
	"context"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"reflect"
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
		case reflect.DeepEqual(was.v.Interface(), s.v.Interface()):
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

// files maps paths to file information, nil for missing files. A directory includes its definitions. Symbolic links are
// followed, so that a changed link target is detected, for example when Kubernetes updates a ConfigMap.
type files map[string]fs.FileInfo

// look adds the current state of paths.
func (f files) look(paths ...string) {
	for _, path := range paths {
		info, err := os.Stat(path)
		if err != nil {
			info = nil
		}
		f[path] = info
		if info == nil || !info.IsDir() {
			continue
		}
		entries, err := os.ReadDir(path)
		if err != nil {
			continue // reported by the user of the directory
		}
		for _, e := range entries {
			if ext := filepath.Ext(e.Name()); ext == ".yaml" || ext == ".yml" {
				f.look(filepath.Join(path, e.Name()))
			}
		}
	}
}

// lookAt returns the current state of paths.
func lookAt(paths []string) files {
	now := files{}
	now.look(paths...)
	return now
}

// equal reports whether no file has changed, according to identity, size and modification time.
func (f files) equal(g files) bool {
	if len(f) != len(g) {
		return false
	}
	for path, a := range f {
		b, ok := g[path]
		if !ok || (a == nil) != (b == nil) {
			return false
		}
		if a == nil || a.IsDir() && b.IsDir() { // entries are compared separately
			continue
		}
		if !os.SameFile(a, b) || a.Size() != b.Size() || !a.ModTime().Equal(b.ModTime()) {
			return false
		}
	}
	return true
}

// watchEvery is the polling interval. Polling also detects changes on network file systems and of link targets, for which there
// are no notifications.
const watchEvery = 2 * time.Second

// WatchFiles calls changed when the files at paths have changed, and when now receives a value, until ctx is done. It ignores
// a file that is still being written: a change counts when two consecutive polls see the same state. Calls do not overlap.
func WatchFiles(ctx context.Context, now <-chan os.Signal, changed func(), paths ...string) {
	watch(ctx, watchEvery, now, lookAt(paths), paths, func(bool) (files, []string) {
		seen := lookAt(paths) // taken before changed reads the files
		changed()
		return seen, paths
	})
}

// watch implements WatchFiles, starting from a known state of the files. changed returns the state just before it read the
// files, and the paths to watch next.
func watch(ctx context.Context, every time.Duration, now <-chan os.Signal, seen files, paths []string, changed func(asked bool) (files, []string)) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	settling := settling{seen: seen}
	for {
		asked := false
		select {
		case <-ctx.Done():
			return
		case <-now:
			asked = true
		case <-tick.C:
			if !settling.stable(lookAt(paths)) {
				continue
			}
		}
		settling.seen, paths = changed(asked)
		settling.last = nil
	}
}

// settling distinguishes complete changes from files that are still being written.
type settling struct {
	seen files // state when the files were loaded
	last files // changed state at the last poll, or nil
}

// stable reports whether the files have changed since they were loaded, but not since the last poll.
func (s *settling) stable(current files) bool {
	if current.equal(s.seen) {
		s.last = nil
		return false
	}
	if s.last == nil || !current.equal(s.last) {
		s.last = current
		return false
	}
	return true
}
