// Package ledger stores the last state of the records of a site, to find which are new, changed, unchanged or gone.
//
// A book is a file for one type of record: the state of each in the last job that had it, when it was first seen, and
// its last changes. While a job runs the book is only read; Update replaces it atomically when the job has ended.
package ledger

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"muster/internal/atomicfile"
	"muster/sites/internal/lines"
)

// Change says how a record differs from the job before.
type Change string

// The changes.
const (
	New       Change = "new"
	Changed   Change = "changed"
	Unchanged Change = "unchanged"
	Gone      Change = "gone" // missing in a complete job
)

const (
	maxHistory = 10 // changes of a record that are kept
	maxMissed  = 5  // complete jobs after which a record that is gone is dropped
)

// Entry is a record in a book. Times are Unix seconds.
type Entry struct {
	Key     string          `json:"key"`
	First   int64           `json:"first"`             // when it was first seen
	Last    int64           `json:"last"`              // when it was last seen
	Missed  int             `json:"missed,omitempty"`  // complete jobs in a row that did not have it
	History []Step          `json:"history,omitempty"` // its last changes, the newest last
	Record  json.RawMessage `json:"record"`
}

// Step is one change of a record: the old and new values of each changed field.
type Step struct {
	At     int64                         `json:"at"`
	Fields map[string][2]json.RawMessage `json:"fields"`
}

// head is the first line of a book.
type head struct {
	Ledger int    `json:"ledger"` // the version of the format
	Run    string `json:"run"`    // the last job that updated it
}

const format = 1

// Book is the ledger of one type of record, open for reading. It is not safe for concurrent use. The caller must
// close it.
type Book struct {
	path  string
	watch []string // the fields to compare; none: all
	f     *os.File // nil: the file does not exist yet
	run   string
	index map[[16]byte]place
}

// place is the position of an entry in the file, and the fingerprint of its record.
type place struct {
	at    int64
	size  int32
	gone  bool
	print uint64
}

func keyID(key string) (id [16]byte) {
	sum := sha256.Sum256([]byte(key))
	copy(id[:], sum[:])
	return id
}

// Open opens a book. One that does not exist is empty. A record is changed if one of the fields in watch is, or, if
// watch is empty, any field.
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
		return nil, errors.Join(fmt.Errorf("%s: %w; move it away to begin anew", path, err), f.Close())
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
			err := json.Unmarshal(line, &h)
			if err == nil && h.Ledger > format {
				return fmt.Errorf("it is of version %d, of a newer release; this one reads version %d: upgrade", h.Ledger, format)
			}
			if err != nil || h.Ledger != format {
				return fmt.Errorf("not a ledger of version %d", format)
			}
			b.run = h.Run
		} else {
			var e Entry
			if err := json.Unmarshal(line, &e); err != nil {
				return fmt.Errorf("byte %d: %w", at, err)
			}
			print, err := b.fingerprint(e.Record)
			if err != nil {
				return fmt.Errorf("byte %d: %w", at, err)
			}
			b.index[keyID(e.Key)] = place{at: at, size: int32(len(line)), gone: e.Missed > 0, print: print}
		}
		at += int64(len(line)) + 1
	}
	// It is written in one step: unlike records, it ends with a whole line.
	if info, err := b.f.Stat(); err != nil || at == 0 || info.Size() != at {
		return errors.Join(err, fmt.Errorf("its end is missing after byte %d", at))
	}
	return nil
}

// Len returns the number of records in the book.
func (b *Book) Len() int { return len(b.index) }

// Close closes the book.
func (b *Book) Close() error {
	if b.f == nil {
		return nil
	}
	if err := b.f.Close(); err != nil {
		return fmt.Errorf("close %s: %w", b.path, err)
	}
	return nil
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

// Compare returns the change of a record, and for a changed one the old and new values of the fields that differ; a
// missing value is null. Fields whose names begin with _ say how a record was found and are ignored.
func (b *Book) Compare(key string, record []byte) (Change, map[string][2]json.RawMessage, error) {
	p, ok := b.index[keyID(key)]
	if !ok || p.gone {
		return New, nil, nil
	}
	print, err := b.fingerprint(record)
	if err != nil {
		return "", nil, fmt.Errorf("record %s: %w", key, err)
	}
	if print == p.print {
		return Unchanged, nil, nil
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

// fields decodes the fields of a record that are compared.
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

func (b *Book) fingerprint(record []byte) (uint64, error) {
	m, err := b.fields(record)
	if err != nil {
		return 0, err
	}
	h := sha256.New()
	for _, name := range slices.Sorted(maps.Keys(m)) {
		fmt.Fprintf(h, "%d %s%d ", len(name), name, len(m[name]))
		h.Write(m[name])
	}
	return binary.BigEndian.Uint64(h.Sum(nil)), nil
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

// Job is a job to update a book with.
type Job struct {
	Run      string    // the job
	At       time.Time // when it ended
	Records  string    // its JSONL file of this type
	Watch    []string  // see Open
	Complete bool      // it has all records: missing ones are gone
	// Fence is called before the book is replaced; its error is that of Update. Required.
	Fence func() error
}

// Update replaces the book at path by one with the records of a job, for the next job to be compared with. It calls
// gone for each record that is missing now and was not before. A second Update with the same job, as after a crash,
// changes nothing, but calls gone again.
func Update(path string, job Job, gone func(Entry) error) (err error) {
	b, err := Open(path, job.Watch...)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.Close()) }()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return fmt.Errorf("make the folder of %s: %w", path, err)
	}
	in, err := os.Open(job.Records)
	if err != nil {
		return fmt.Errorf("open records: %w", err)
	}
	defer in.Close()
	return atomicfile.Write(path, 0o600, func(w io.Writer) error {
		if err := b.update(in, w, job, gone); err != nil {
			return err
		}
		return job.Fence()
	})
}

// update writes the book b with the records of a job.
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
		id := keyID(r.Key)
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
	p, ok := b.index[keyID(key)]
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

// missing writes the entries of records that the job does not have.
func (b *Book) missing(met map[[16]byte]struct{}, job Job, enc *json.Encoder, gone func(Entry) error) error {
	var rest []place
	for id, p := range b.index {
		if _, ok := met[id]; !ok {
			rest = append(rest, p)
		}
	}
	slices.SortFunc(rest, func(a, b place) int { return int(a.at/2 - b.at/2) })
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

// Show returns the entry of a record, and whether the book has it.
func (b *Book) Show(key string) (Entry, bool, error) {
	p, ok := b.index[keyID(key)]
	if !ok {
		return Entry{}, false, nil
	}
	e, err := b.entry(p)
	return e, true, err
}
