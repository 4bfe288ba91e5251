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

// permits are the directories and sinks that this process may write to: from its configuration and from scrapes that it sent.
// Requests from other processes add none, since any client can send one.
type permits struct {
	mu    sync.Mutex // guards the fields below
	dirs  []string   // absolute
	sinks []string   // addresses
}

// allow adds sinks, and a directory unless it is "".
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

// check returns an error with a remedy if this process may not write the records of a request.
func (p *permits) check(req store.Request) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !slices.ContainsFunc(p.dirs, func(dir string) bool { return isBelow(dir, req.OutDir) }) {
		return fmt.Errorf("this process may not write to %s; set sites.out to this directory or use muster scrape --out", req.OutDir)
	}
	for _, address := range req.Sinks {
		if isLocalSQLite(address) {
			continue
		}
		if !slices.Contains(p.sinks, address) {
			return errors.New("this process may not write to a sink of the job; add it to sites.sinks or use muster scrape --sink")
		}
	}
	return nil
}

// isLocalSQLite reports whether a sink is a database below the records directory.
func isLocalSQLite(address string) bool {
	path, ok := strings.CutPrefix(address, "sqlite:")
	return ok && filepath.IsLocal(path)
}

// list returns the directories and the sinks.
func (p *permits) list() (dirs, sinks []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.dirs), slices.Clone(p.sinks)
}

// isBelow reports whether path is dir or below it, after resolving links.
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
