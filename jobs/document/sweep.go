package document

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// sweepAge is how old a file is that Sweep removes. A document that was just stored gets its job soon, and a file that
// is being written ends.
const sweepAge = 24 * time.Hour

// Sweep removes unused files that were written more than a day ago: documents that used does not report, such as
// documents of rejected requests, and incomplete files of killed processes. It returns their number.
func (s *Store) Sweep(ctx context.Context, used func(ctx context.Context, hash string) (bool, error)) (int, error) {
	if _, err := os.Stat(s.cfg.Dir); errors.Is(err, fs.ErrNotExist) {
		return 0, nil // it is created by the first document
	}
	if err := s.Check(ctx); err != nil { // of another store: used knows nothing of its documents
		return 0, err
	}
	parts, err := filepath.Glob(filepath.Join(s.cfg.Dir, partFolder, "*.part"))
	if err != nil {
		return 0, fmt.Errorf("sweep the folder of documents: %w", err)
	}
	documents, err := filepath.Glob(filepath.Join(s.cfg.Dir, "[0-9a-f][0-9a-f]", "*"))
	if err != nil {
		return 0, fmt.Errorf("sweep the folder of documents: %w", err)
	}
	removed := 0
	count := func(gone bool, err error) error {
		if gone {
			removed++
		}
		return err
	}
	for _, part := range parts {
		if err := count(s.removePart(ctx, part, used)); err != nil {
			return removed, fmt.Errorf("sweep the folder of documents: %w", err)
		}
	}
	for _, file := range documents {
		if err := count(s.removeUnused(ctx, file, used)); err != nil {
			return removed, fmt.Errorf("sweep the folder of documents: %w", err)
		}
	}
	return removed, nil
}

// removePart removes a file that is old and reports whether it did. One that is a document which was being removed when
// its process was killed, or when it could not be put back, is put back if it is used.
func (s *Store) removePart(ctx context.Context, part string, used func(context.Context, string) (bool, error)) (bool, error) {
	of, _, _ := strings.Cut(filepath.Base(part), ".")
	path, err := s.path(of)
	if err != nil { // it is not a document
		return removeOld(part)
	}
	is, err := used(ctx, of)
	switch {
	case err != nil:
		return false, err
	case is:
		return false, unlessGone(os.Rename(part, path)) // replaces its equal
	}
	return removeOld(part)
}

// removeUnused removes a document that is old and not used, and reports whether it did. The file is moved before it
// is removed, so that one is kept that was stored again meanwhile.
func (s *Store) removeUnused(ctx context.Context, file string, used func(context.Context, string) (bool, error)) (bool, error) {
	of := filepath.Base(file)
	if old, err := isOld(file); !hash.MatchString(of) || !old || err != nil {
		return false, err
	}
	if is, err := used(ctx, of); is || err != nil {
		return false, err
	}
	aside := s.trashName(of)
	if err := os.Rename(file, aside); err != nil {
		return false, unlessGone(err)
	}
	gone, err := removeOld(aside)
	if gone || err != nil {
		return gone, err
	}
	return false, unlessGone(os.Rename(aside, file)) // replaces its equal
}

// removeOld removes a file if it is old, and reports whether it did.
func removeOld(file string) (bool, error) {
	if old, err := isOld(file); !old || err != nil {
		return false, err
	}
	err := os.Remove(file)
	return err == nil, unlessGone(err)
}

// isOld reports whether a file is there and is old.
func isOld(file string) (bool, error) {
	info, err := os.Lstat(file)
	if err != nil {
		return false, unlessGone(err)
	}
	return time.Since(info.ModTime()) > sweepAge, nil
}

// unlessGone returns err, or nil if the file was removed by another process.
func unlessGone(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}
