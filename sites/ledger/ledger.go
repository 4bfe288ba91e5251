// Package ledger stores the last state of a site's records, to find new, changed, unchanged and missing records.
//
// A book is a file for one type of record. It has each record's state in the last job that had it, the time of its first
// occurrence, and its last changes. A running job only reads the book; Update replaces it atomically at the end of the job.
package ledger

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"muster/internal/atomicfile"
	"muster/internal/wrap"
	"muster/sites/internal/lines"
)

// Change is the difference of a record from the previous job.
type Change string

// Kinds of change.
const (
	New       Change = "new"
	Changed   Change = "changed"
	Unchanged Change = "unchanged"
	Gone      Change = "gone" // missing from a complete job
)

const (
	maxHistory = 10 // kept changes per record
	maxMissed  = 5  // complete jobs without a record until it is dropped
)

// Entry is a record in a book. Times are Unix seconds.
type Entry struct {
	Key     string          `json:"key"`
	First   int64           `json:"first"`             // first occurrence
	Last    int64           `json:"last"`              // last occurrence
	Missed  int             `json:"missed,omitempty"`  // consecutive complete jobs without it
	History []Step          `json:"history,omitempty"` // last changes, newest last
	Record  json.RawMessage `json:"record"`
}

// Step is one change of a record: the old and new values of each changed field.
type Step struct {
	At     int64                         `json:"at"`
	Fields map[string][2]json.RawMessage `json:"fields"`
}

// head is the first line of a book.
type head struct {
	Ledger int    `json:"ledger"` // version of the format
	Run    string `json:"run"`    // job of the last update
}

const format = 1

// A Book is the ledger of one type of record, open for reading. It is not safe for concurrent use. The caller must close it.
type Book struct {
	path  string
	watch []string // the fields to compare; none: all
	f     *os.File // nil: the file does not exist yet
	run   string
	index map[[16]byte]place
}

// place is the position of an entry in the file.
type place struct {
	at   int64
	size int32
	gone bool
}

// Open opens a book. A missing file is an empty book. A record counts as changed if a field in watch differs, or any field if
// watch is empty.
func Open(path string, watch ...string) (*Book, error) {
	b := &Book{path: path, watch: watch, index: map[[16]byte]place{}}
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return b, nil
	}
	if err != nil {
		return nil, fmt.Errorf("open ledger: %w", err)
	}
	b.f = f
	if err := b.load(); err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w; move the file away to start a new one", path, err), f.Close())
	}
	return b, nil
}

func (b *Book) load() error {
	var at int64
	for line, err := range lines.Of(b.f) {
		if err != nil {
			return err
		}
		if at == 0 {
			var h head
			if err := json.Unmarshal(line, &h); err != nil || h.Ledger != format {
				return fmt.Errorf("not a ledger of version %d, but of version %d", format, h.Ledger)
			}
			b.run = h.Run
		} else {
			var e Entry
			if err := json.Unmarshal(line, &e); err != nil {
				return fmt.Errorf("byte %d: %w", at, err)
			}
			b.index[lines.KeyID(e.Key)] = place{at: at, size: int32(len(line)), gone: e.Missed > 0}
		}
		at += int64(len(line)) + 1
	}
	// The file is written atomically, so unlike files of records it must end in a whole line.
	if info, err := b.f.Stat(); err != nil || at == 0 || info.Size() != at {
		return errors.Join(err, fmt.Errorf("truncated after byte %d", at))
	}
	return nil
}

// Search returns up to n entries of the book at path whose key or URL is text. It does not load the book.
func Search(path, text string, n int) (found []Entry, err error) {
	quoted, err := lines.JSON(text)
	if err != nil {
		return nil, err
	}
	for line, err := range lines.File(path) {
		if err != nil {
			return nil, fmt.Errorf("read %s: %w", path, err)
		}
		if !bytes.Contains(line, quoted) {
			continue
		}
		var e Entry
		var r struct {
			URL string `json:"_url"`
		}
		if err := json.Unmarshal(line, &e); err != nil {
			return nil, fmt.Errorf("read %s: %w", path, err)
		}
		if err := json.Unmarshal(e.Record, &r); err != nil && e.Record != nil {
			return nil, fmt.Errorf("read %s: record %s: %w", path, e.Key, err)
		}
		if e.Key == text || r.URL == text {
			if found = append(found, e); len(found) == n {
				break
			}
		}
	}
	return found, nil
}

// Close closes the book.
func (b *Book) Close() error {
	if b.f == nil {
		return nil
	}
	return wrap.Err(b.f.Close(), "close %s", b.path)
}

func (b *Book) entry(p place) (Entry, error) {
	line := make([]byte, p.size)
	var e Entry
	if _, err := b.f.ReadAt(line, p.at); err != nil {
		return e, fmt.Errorf("read %s: %w", b.path, err)
	}
	if err := json.Unmarshal(line, &e); err != nil {
		return e, fmt.Errorf("read %s: byte %d: %w", b.path, p.at, err)
	}
	return e, nil
}

// Find returns the entry of a record. ok is false if the book has none.
func (b *Book) Find(key string) (e Entry, ok bool, err error) {
	p, ok := b.index[lines.KeyID(key)]
	if !ok {
		return e, false, nil
	}
	e, err = b.entry(p)
	return e, err == nil, err
}

// Has reports whether the last complete job had a record.
func (b *Book) Has(key string) bool {
	p, ok := b.index[lines.KeyID(key)]
	return ok && !p.gone
}

// All yields the entries of records that Has reports.
func (b *Book) All() iter.Seq2[Entry, error] {
	return func(yield func(Entry, error) bool) {
		for _, p := range b.index {
			if p.gone {
				continue
			}
			if e, err := b.entry(p); !yield(e, err) || err != nil {
				return
			}
		}
	}
}

// Compare returns the change of a record, and for a changed record the old and new values of the fields that differ; a missing
// value is null. It ignores fields whose names begin with _, which describe the extraction.
func (b *Book) Compare(key string, record []byte) (Change, map[string][2]json.RawMessage, error) {
	p, ok := b.index[lines.KeyID(key)]
	if !ok || p.gone {
		return New, nil, nil
	}
	e, err := b.entry(p)
	if err != nil {
		return "", nil, err
	}
	diff, err := b.differ(e.Record, record)
	if err != nil {
		return "", nil, fmt.Errorf("record %s: %w", key, err)
	}
	if len(diff) == 0 {
		return Unchanged, nil, nil
	}
	return Changed, diff, nil
}

// fields decodes the compared fields of a record.
func (b *Book) fields(record []byte) (map[string]json.RawMessage, error) {
	var m map[string]json.RawMessage
	if err := json.Unmarshal(record, &m); err != nil {
		return nil, err
	}
	maps.DeleteFunc(m, func(name string, _ json.RawMessage) bool {
		return strings.HasPrefix(name, "_") || len(b.watch) > 0 && !slices.Contains(b.watch, name)
	})
	return m, nil
}

func (b *Book) differ(was, is []byte) (map[string][2]json.RawMessage, error) {
	old, err := b.fields(was)
	if err != nil {
		return nil, err
	}
	now, err := b.fields(is)
	if err != nil {
		return nil, err
	}
	diff := map[string][2]json.RawMessage{}
	null := json.RawMessage("null")
	for name, v := range now {
		o, ok := old[name]
		if !ok {
			o = null
		}
		if !bytes.Equal(o, v) {
			diff[name] = [2]json.RawMessage{o, v}
		}
	}
	for name, o := range old {
		if _, ok := now[name]; !ok && !bytes.Equal(o, null) {
			diff[name] = [2]json.RawMessage{o, null}
		}
	}
	return diff, nil
}

// Job has the results of a job for an update of a book.
type Job struct {
	Run      string    // ID of the job
	At       time.Time // end of the job
	Records  string    // JSONL file of this type
	Watch    []string  // see Open
	Complete bool      // has all records: missing ones are Gone
}

// Update replaces the book at path with the records of a job. It calls gone for each record that is missing for the first time.
// Repeating it with the same job, as after a crash, changes nothing but calls gone again.
func Update(path string, job Job, gone func(Entry) error) (err error) {
	b, err := Open(path, job.Watch...)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.Close()) }()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return fmt.Errorf("create the directory of %s: %w", path, err)
	}
	in, err := os.Open(job.Records)
	if err != nil {
		return fmt.Errorf("open records: %w", err)
	}
	defer in.Close()
	return atomicfile.Write(path, 0o600, func(w io.Writer) error { return b.update(in, w, job, gone) })
}

// update writes a new book with the records of a job.
func (b *Book) update(records io.Reader, w io.Writer, job Job, gone func(Entry) error) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(head{format, job.Run}); err != nil {
		return err
	}
	met := make(map[[16]byte]struct{}, len(b.index))
	for line, lerr := range lines.Of(records) {
		if lerr != nil {
			return fmt.Errorf("read %s: %w", job.Records, lerr)
		}
		var r struct {
			Key string `json:"_key"`
		}
		if err := json.Unmarshal(line, &r); err != nil {
			return fmt.Errorf("read %s: %w", job.Records, err)
		}
		id := lines.KeyID(r.Key)
		if _, again := met[id]; again || r.Key == "" {
			continue
		}
		met[id] = struct{}{}
		e, err := b.next(r.Key, line, job)
		if err != nil {
			return err
		}
		if err := enc.Encode(e); err != nil {
			return err
		}
	}
	return b.missing(met, job, enc, gone)
}

// next returns the new entry of a record of the job.
func (b *Book) next(key string, record []byte, job Job) (Entry, error) {
	at := job.At.Unix()
	e := Entry{Key: key, First: at, Last: at, Record: slices.Clone(record)}
	p, ok := b.index[lines.KeyID(key)]
	if !ok {
		return e, nil
	}
	old, err := b.entry(p)
	if err != nil {
		return e, err
	}
	e.First, e.History = old.First, old.History
	diff, err := b.differ(old.Record, record)
	if err != nil {
		return e, fmt.Errorf("record %s: %w", key, err)
	}
	if len(diff) > 0 {
		e.History = append(e.History, Step{At: at, Fields: diff})
		e.History = e.History[max(len(e.History)-maxHistory, 0):]
	}
	return e, nil
}

// missing writes the entries of records that are missing from the job.
func (b *Book) missing(met map[[16]byte]struct{}, job Job, enc *json.Encoder, gone func(Entry) error) error {
	var rest []place
	for id, p := range b.index {
		if _, ok := met[id]; !ok {
			rest = append(rest, p)
		}
	}
	slices.SortFunc(rest, func(a, b place) int { return cmp.Compare(a.at, b.at) })
	for _, p := range rest {
		e, err := b.entry(p)
		if err != nil {
			return err
		}
		if job.Complete && b.run != job.Run {
			e.Missed++
		}
		if e.Missed == 1 && job.Complete {
			if err := gone(e); err != nil {
				return err
			}
		}
		if e.Missed > maxMissed {
			continue
		}
		if err := enc.Encode(e); err != nil {
			return err
		}
	}
	return nil
}
