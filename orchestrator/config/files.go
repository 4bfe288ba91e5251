package config

import (
	"context"
	"io/fs"
	"os"
	"path/filepath"
	"time"
)

// files are what was found at paths: of a folder, also its definitions. A path
// without anything has nil. Symbolic links are followed, so that a link that
// points elsewhere is noticed, as Kubernetes replaces its ConfigMaps.
type files map[string]fs.FileInfo

// look adds what is at paths now.
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
			continue // what uses the folder says so
		}
		for _, e := range entries {
			if ext := filepath.Ext(e.Name()); ext == ".yaml" || ext == ".yml" {
				f.look(filepath.Join(path, e.Name()))
			}
		}
	}
}

// lookAt returns what is at paths now.
func lookAt(paths []string) files {
	now := files{}
	now.look(paths...)
	return now
}

// same reports whether the files are the same, as far as can be seen without
// reading them.
func (f files) same(g files) bool {
	if len(f) != len(g) {
		return false
	}
	for path, a := range f {
		b, ok := g[path]
		if !ok || (a == nil) != (b == nil) {
			return false
		}
		if a == nil || a.IsDir() && b.IsDir() { // its entries are compared
			continue
		}
		if !os.SameFile(a, b) || a.Size() != b.Size() || !a.ModTime().Equal(b.ModTime()) {
			return false
		}
	}
	return true
}

// watchEvery is how often files are looked at. Polling sees what notifications do
// not: changes on network file systems, and files that a link is turned to.
const watchEvery = 2 * time.Second

// WatchFiles calls changed when the files at paths have changed, and when now has
// a value, until ctx is done. A file that is still being written is left alone: it
// has changed once it looks the same twice, some seconds apart. Calls follow one
// another.
func WatchFiles(ctx context.Context, now <-chan struct{}, changed func(), paths ...string) {
	watch(ctx, watchEvery, now, lookAt(paths), paths, func(bool) (files, []string) {
		seen := lookAt(paths) // before they are read
		changed()
		return seen, paths
	})
}

// watch is WatchFiles for files that have been looked at. Changed returns what it
// has found just before it read, and which paths to look at from now on.
func watch(ctx context.Context, every time.Duration, now <-chan struct{}, seen files, paths []string, changed func(asked bool) (files, []string)) {
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
			if !settling.over(lookAt(paths)) {
				continue
			}
		}
		settling.seen, paths = changed(asked)
		settling.last = nil
	}
}

// settling tells files that have changed from those that are still being written.
type settling struct {
	seen files // when they were loaded
	last files // at the last look, if they had changed
}

// over reports whether files have changed, and look as they did at the last look.
func (s *settling) over(current files) bool {
	if current.same(s.seen) {
		s.last = nil
		return false
	}
	if s.last == nil || !current.same(s.last) {
		s.last = current
		return false
	}
	return true
}
