package record

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"muster/sites/internal/store"
)

// permits are the folders and sinks that this process may write records to:
// those in its settings, and those of scrapes that it sent itself. A request
// from another process adds none, since any client can send one.
type permits struct {
	mu    sync.Mutex // guards the fields below
	dirs  []string   // absolute
	sinks []string   // addresses
}

// allow adds a folder, unless it is "", and sinks.
func (p *permits) allow(dir string, sinks []string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, address := range sinks {
		if !slices.Contains(p.sinks, address) {
			p.sinks = append(p.sinks, address)
		}
	}
	if dir == "" {
		return nil
	}
	dir, err := filepath.Abs(dir)
	if err != nil {
		return fmt.Errorf("output folder: %w", err)
	}
	if !slices.Contains(p.dirs, dir) {
		p.dirs = append(p.dirs, dir)
	}
	return nil
}

// check returns why the records of a request are not written by this process,
// and what to do.
func (p *permits) check(req store.Request) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !slices.ContainsFunc(p.dirs, func(dir string) bool { return isBelow(dir, req.OutDir) }) {
		return fmt.Errorf("this process may not write to %s: name that folder in its settings, as sites.out, or with muster scrape --out", req.OutDir)
	}
	for _, address := range req.Sinks {
		if isLocalSQLite(address) {
			continue
		}
		if !slices.Contains(p.sinks, address) {
			return errors.New("this process may not write to a sink of the job: name it in its settings, in sites.sinks, or with muster scrape --sink")
		}
	}
	return nil
}

// isLocalSQLite reports whether a sink is a database below the folder for records.
func isLocalSQLite(address string) bool {
	path, ok := strings.CutPrefix(address, "sqlite:")
	return ok && filepath.IsLocal(path)
}

// list returns the folders and the sinks.
func (p *permits) list() (dirs, sinks []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.dirs), slices.Clone(p.sinks)
}

// isBelow reports whether path is dir or below it, after following links.
func isBelow(dir, path string) bool {
	if dir == path {
		return true
	}
	dir, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return false
	}
	if path, err = filepath.EvalSymlinks(path); err != nil {
		return false
	}
	rel, err := filepath.Rel(dir, path)
	return err == nil && filepath.IsLocal(rel)
}
