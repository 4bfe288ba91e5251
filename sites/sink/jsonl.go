// Package sink keeps records where they are wanted.
//
// A sink takes a record once, however often it is given it: records carry a
// key, and what a crash made the caller give twice is left out. What Sync has
// returned for is on the disk.
package sink

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// JSONL appends records to a file, one JSON object per line. It is for one
// goroutine.
type JSONL struct {
	path string
	f    *os.File
	w    *bufio.Writer
	keys map[string]struct{}
	torn bool  // Open cut off a last line that a crash had torn
	err  error // of a write; the buffer is lost and the file must be opened again
}

// head is what a line must have to be told from others.
type head struct {
	Key string `json:"_key"`
}

// OpenJSONL opens a file to append to, and makes it and its folder when they
// are not there. The records in it count as given. A last line without its
// end, or that is no JSON, is what a crash left of a record that nobody was
// told is safe: it is cut off.
func OpenJSONL(path string) (*JSONL, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, fmt.Errorf("make the folder of %s: %w", path, err)
	}
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return nil, fmt.Errorf("open records: %w", err)
	}
	s := &JSONL{path: path, f: f, keys: map[string]struct{}{}}
	if err := s.load(); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	s.w = bufio.NewWriterSize(f, 64<<10)
	return s, nil
}

// load reads the keys of what is there and leaves the file at its end.
func (s *JSONL) load() error {
	r := bufio.NewReaderSize(s.f, 256<<10)
	var good int64
	for {
		line, err := r.ReadBytes('\n')
		if err != nil && err != io.EOF {
			return fmt.Errorf("read %s: %w", s.path, err)
		}
		whole := err == nil
		var h head
		if whole && len(bytes.TrimSpace(line)) > 0 {
			if jerr := json.Unmarshal(line, &h); jerr != nil {
				if _, peek := r.Peek(1); peek != io.EOF {
					return fmt.Errorf("%s is no JSONL file: byte %d: %w; move it away or choose another folder", s.path, good, jerr)
				}
				whole = false
			}
		}
		if !whole {
			if s.torn = len(line) > 0; s.torn {
				if err := s.f.Truncate(good); err != nil {
					return fmt.Errorf("cut the torn end off %s: %w", s.path, err)
				}
			}
			break
		}
		good += int64(len(line))
		if h.Key != "" {
			s.keys[h.Key] = struct{}{}
		}
	}
	if _, err := s.f.Seek(good, io.SeekStart); err != nil {
		return fmt.Errorf("seek in %s: %w", s.path, err)
	}
	return nil
}

// Put appends a record unless one with its key is there, and says whether it
// was new. The record is a JSON object without a line end. It is safe only
// after Sync.
func (s *JSONL) Put(key string, record []byte) (bool, error) {
	if s.err != nil {
		return false, s.err
	}
	if _, ok := s.keys[key]; ok && key != "" {
		return false, nil
	}
	if _, err := s.w.Write(append(record[:len(record):len(record)], '\n')); err != nil {
		s.err = fmt.Errorf("write to %s: %w", s.path, err)
		return false, s.err
	}
	if key != "" {
		s.keys[key] = struct{}{}
	}
	return true, nil
}

// Sync brings everything given so far to the disk.
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
	return nil
}

// Count is the number of records with a key in the file.
func (s *JSONL) Count() int { return len(s.keys) }

// Path is the file's name.
func (s *JSONL) Path() string { return s.path }

// Close writes what is buffered and closes the file.
func (s *JSONL) Close() error {
	err := s.err
	if err == nil {
		err = s.Sync()
	}
	if cerr := s.f.Close(); cerr != nil && err == nil {
		err = fmt.Errorf("close %s: %w", s.path, cerr)
	}
	return err
}
