package config

import (
	"context"
	"io/fs"
	"os"
	"path/filepath"
	"time"
)

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
