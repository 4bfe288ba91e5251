// Package sink stores records in files, databases and webhooks.
//
// A sink stores each record once: records have a key, and one that the caller puts again after a crash is skipped.
// After Sync, all records put before are on disk.
//
// # Late processes
//
// Files have one writer at a time, by a lease that expires. A process that was stopped, between any two system calls,
// may continue much later, while another one has taken over. Locks do not help: a stopped process keeps its lock. So
// nothing that a late process may still do can change the files of the new writer:
//
//   - A file is appended to through an open file only, and a [Fence] is called between opening it and using it. A
//     process that takes over replaces each file by a copy ([Reclaim]): the late one writes to the old file,
//     which has no name any more.
//   - All other changes write a temporary file and rename it (package atomicfile), and the Fence is called between the
//     two. A process that takes over removes temporary files first, so that a late one has nothing to rename.
package sink

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"muster/internal/atomicfile"
	"muster/sites/internal/lines"
)

// A Fence returns nil if the caller may still change the files, and an error otherwise.
type Fence func() error

// JSONL appends records to a file, one JSON object per line. It is not safe for concurrent use.
type JSONL struct {
	path  string
	fence Fence
	f     *os.File
	w     *bufio.Writer
	keys  map[string]struct{}
	torn  bool  // Open truncated an incomplete last line
	err   error // of a write; the buffer is lost, and the file must be reopened
}

// head is the identifying part of a line.
type head struct {
	Key string `json:"_key"`
}

// OpenJSONL opens a file for appending and creates it and its directory if they do not exist. Records in the file count as put. A
// last line without a newline or with invalid JSON is a record that was not synced before a crash, and is truncated. If the fence
// returns an error, nothing is changed.
func OpenJSONL(path string, fence Fence) (*JSONL, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, fmt.Errorf("create the directory of %s: %w", path, err)
	}
	const flags = os.O_RDWR | os.O_APPEND
	f, err := os.OpenFile(path, flags, 0)
	if errors.Is(err, fs.ErrNotExist) {
		// Do not use O_CREATE: a late process would create a file that another one has removed.
		if err := atomicfile.Write(path, 0o600, func(io.Writer) error { return fence() }); err != nil {
			return nil, err
		}
		f, err = os.OpenFile(path, flags, 0)
	}
	if err != nil {
		return nil, fmt.Errorf("open records: %w", err)
	}
	s := &JSONL{path: path, fence: fence, f: f, keys: map[string]struct{}{}}
	if err := fence(); err != nil {
		return nil, errors.Join(err, f.Close())
	}
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
			s.keys[h.Key] = struct{}{}
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

// Sync writes all records to disk. If the file was removed or replaced in the meantime, Sync restores it, if the fence allows,
// and returns an error; the caller must then reopen it.
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
	if err := s.fence(); err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(s.path), 0o700); err != nil {
		return fmt.Errorf("recreate the directory of %s: %w", s.path, err)
	}
	if err := copyTo(s.path, s.f, s.fence); err != nil {
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
	if err := s.f.Close(); err != nil {
		return fmt.Errorf("close %s: %w", s.path, err)
	}
	return nil
}

// Reclaim replaces a file by a copy without an incomplete last line. A process that opened the file earlier can no longer change
// it.
func Reclaim(path string, fence Fence) error {
	f, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("open records: %w", err)
	}
	defer f.Close()
	return copyTo(path, f, fence)
}

// copyTo writes the complete lines of f to the file at path.
func copyTo(path string, f *os.File, fence Fence) error {
	info, err := f.Stat()
	if err != nil {
		return fmt.Errorf("read records: %w", err)
	}
	size, err := wholeLines(f, info.Size())
	if err != nil {
		return fmt.Errorf("read %s: %w", path, err)
	}
	return atomicfile.Write(path, info.Mode().Perm(), func(w io.Writer) error {
		if _, err := f.Seek(0, io.SeekStart); err != nil {
			return err
		}
		if _, err := io.Copy(w, io.LimitReader(f, size)); err != nil {
			return err
		}
		return fence()
	})
}

// wholeLines returns the length of f up to the last newline.
func wholeLines(f io.ReaderAt, size int64) (int64, error) {
	buf := make([]byte, 64<<10)
	for size > 0 {
		part := buf[:min(size, int64(len(buf)))]
		n, err := f.ReadAt(part, size-int64(len(part)))
		if err != nil && err != io.EOF {
			return 0, err
		}
		if n < len(part) { // a late writer truncated an incomplete line
			size -= int64(len(part) - n)
			continue
		}
		if i := bytes.LastIndexByte(part, '\n'); i >= 0 {
			return size - int64(len(part)-i-1), nil
		}
		size -= int64(len(part))
	}
	return 0, nil
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
