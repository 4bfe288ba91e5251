// Package sink stores records in files, databases and webhooks.
//
// A sink stores each record once: records have a key, and one that the caller puts again after a crash is skipped.
// After Sync, all records put before are on disk.
package sink

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"

	"muster/internal/atomicfile"
	"muster/internal/wrap"
	"muster/sites/internal/lines"
)

// JSONL appends records to a file, one JSON object per line. It is not safe for concurrent use.
type JSONL struct {
	path string
	f    *os.File
	w    *bufio.Writer
	keys map[[16]byte]struct{} // hashes
	torn bool                  // Open truncated an incomplete last line
	err  error                 // of a write; the buffer is lost, and the file must be reopened
}

// head is the identifying part of a line.
type head struct {
	Key string `json:"_key"`
}

// OpenJSONL opens a file for appending and creates it and its directory if they do not exist. Records in the file count as put. A
// last line without a newline or with invalid JSON is a record that was not synced before a crash, and is truncated.
func OpenJSONL(path string) (*JSONL, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, fmt.Errorf("create the directory of %s: %w", path, err)
	}
	f, err := os.OpenFile(path, os.O_RDWR|os.O_APPEND|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open records: %w", err)
	}
	s := &JSONL{path: path, f: f, keys: map[[16]byte]struct{}{}}
	if err := s.load(); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	if err := atomicfile.SyncDir(filepath.Dir(path)); err != nil { // a rename or a crash may have left the directory unsynced
		return nil, errors.Join(fmt.Errorf("open records: %w", err), f.Close())
	}
	s.w = bufio.NewWriterSize(f, 64<<10)
	return s, nil
}

// load reads the keys of the records in the file and truncates an incomplete last record.
func (s *JSONL) load() error {
	var end, good int64 // ends of the lines and of the valid records
	var bad error
	for line, err := range lines.Of(s.f) {
		if err != nil {
			return fmt.Errorf("read %s: %w", s.path, err)
		}
		if bad != nil {
			break
		}
		end += int64(len(line)) + 1
		var h head
		if len(bytes.TrimSpace(line)) > 0 {
			if bad = json.Unmarshal(line, &h); bad != nil {
				continue
			}
		}
		good = end
		if h.Key != "" {
			s.keys[lines.KeyID(h.Key)] = struct{}{}
		}
	}
	info, err := s.f.Stat()
	if err != nil {
		return fmt.Errorf("read %s: %w", s.path, err)
	}
	if bad != nil && info.Size() > end {
		return fmt.Errorf("%s is not a JSONL file: byte %d: %w; move the file away or choose another directory", s.path, good, bad)
	}
	if s.torn = info.Size() > good; s.torn {
		if err := s.f.Truncate(good); err != nil {
			return fmt.Errorf("truncate incomplete line of %s: %w", s.path, err)
		}
	}
	return nil
}

// Put appends a record unless the file has one with its key, and reports whether it was new. The record is a JSON object without
// a newline. It is on disk only after Sync.
func (s *JSONL) Put(key string, record []byte) (bool, error) {
	if s.err != nil {
		return false, s.err
	}
	id := lines.KeyID(key)
	if _, ok := s.keys[id]; ok && key != "" {
		return false, nil
	}
	if _, err := s.w.Write(append(record[:len(record):len(record)], '\n')); err != nil {
		s.err = fmt.Errorf("write to %s: %w", s.path, err)
		return false, s.err
	}
	if key != "" {
		s.keys[id] = struct{}{}
	}
	return true, nil
}

// Sync writes all records to disk. If the file was removed or replaced in the meantime, Sync restores it and returns an error; the
// caller must then reopen it.
func (s *JSONL) Sync() error {
	if s.err != nil {
		return s.err
	}
	if err := s.w.Flush(); err != nil {
		s.err = fmt.Errorf("write to %s: %w", s.path, err)
		return s.err
	}
	if err := s.f.Sync(); err != nil {
		s.err = fmt.Errorf("sync %s: %w", s.path, err)
		return s.err
	}
	if isAt(s.f, s.path) {
		return nil
	}
	s.err = s.putBack()
	return s.err
}

// putBack restores the file under its name. It always returns an error.
func (s *JSONL) putBack() error {
	if err := os.MkdirAll(filepath.Dir(s.path), 0o700); err != nil {
		return fmt.Errorf("recreate the directory of %s: %w", s.path, err)
	}
	err := atomicfile.Write(s.path, 0o600, func(w io.Writer) error {
		_, err := io.Copy(w, io.NewSectionReader(s.f, 0, math.MaxInt64))
		return err
	})
	if err != nil {
		return fmt.Errorf("restore %s: %w", s.path, err)
	}
	return fmt.Errorf("%s was removed or replaced during writing and has been restored", s.path)
}

// Count returns the number of records with a key in the file.
func (s *JSONL) Count() int { return len(s.keys) }

// Path returns the path of the file.
func (s *JSONL) Path() string { return s.path }

// Close closes the file. Records put since the last Sync may be lost.
func (s *JSONL) Close() error {
	return wrap.Err(s.f.Close(), "close %s", s.path)
}

// isAt reports whether f is the file at path.
func isAt(f *os.File, path string) bool {
	open, err := f.Stat()
	if err != nil {
		return false
	}
	at, err := os.Stat(path)
	return err == nil && os.SameFile(open, at)
}
