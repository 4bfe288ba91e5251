package record

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"muster/sites/internal/store"
	"muster/sites/ledger"
	"muster/sites/sink"
)

// files are the files of a job: one per type of record, changes.jsonl, and the site's ledgers, which are only read. They are
// opened on demand.
type files struct {
	dir     string              // directory of the job
	ledgers string              // directory of the site's ledgers
	watch   map[string][]string // by type: fields whose changes count
	records map[string]*sink.JSONL
	changes *sink.JSONL
	books   map[string]*ledger.Book
	dirty   map[string]bool // types with unsynced records
}

// changeLine is a line of changes.jsonl.
type changeLine struct {
	ID string `json:"_key"` // type and key
	sink.Record
}

func (f *files) path(typ string) string       { return filepath.Join(f.dir, typ+".jsonl") }
func (f *files) changesPath() string          { return filepath.Join(f.dir, "changes.jsonl") }
func (f *files) ledgerPath(typ string) string { return filepath.Join(f.ledgers, typ+".ledger") }

// put appends a record to the file of its type and, if it has changed, to changes.jsonl. It reports whether the record was new in
// its file.
func (f *files) put(r sink.Record) (bool, error) {
	to, err := f.file(r.Type)
	if err != nil {
		return false, err
	}
	fresh, err := to.Put(r.Key, r.Data)
	if err != nil {
		return false, err
	}
	f.dirty[r.Type] = true
	return fresh, f.putChange(r)
}

// compare adds the difference from the ledger to a record.
func (f *files) compare(r *sink.Record) error {
	b, err := f.book(r.Type)
	if err != nil {
		return err
	}
	change, diff, err := b.Compare(r.Key, r.Data)
	if err != nil {
		return err
	}
	r.Change = string(change)
	if len(diff) > 0 {
		if r.Diff, err = json.Marshal(diff); err != nil {
			return fmt.Errorf("encode the changes of %s: %w", r.Key, err)
		}
	}
	return nil
}

// putChange appends a record to changes.jsonl if it has changed. The states of pages have no change.
func (f *files) putChange(r sink.Record) error {
	if r.Change == string(ledger.Unchanged) || r.Type == store.PageType {
		return nil
	}
	if f.changes == nil {
		var err error
		if f.changes, err = sink.OpenJSONL(f.changesPath()); err != nil {
			return err
		}
	}
	r.Data = nil
	line := changeLine{r.Type + " " + r.Key, r}
	data, err := json.Marshal(line)
	if err != nil {
		return fmt.Errorf("encode change of %s: %w", r.Key, err)
	}
	_, err = f.changes.Put(line.ID, data)
	return err
}

func (f *files) file(typ string) (*sink.JSONL, error) {
	if to, ok := f.records[typ]; ok {
		return to, nil
	}
	to, err := sink.OpenJSONL(f.path(typ))
	if err != nil {
		return nil, err
	}
	f.records[typ] = to
	return to, nil
}

func (f *files) book(typ string) (*ledger.Book, error) {
	if b, ok := f.books[typ]; ok {
		return b, nil
	}
	b, err := ledger.Open(f.ledgerPath(typ), f.watch[typ]...)
	if err != nil {
		return nil, err
	}
	f.books[typ] = b
	return b, nil
}

// counts returns the number of records in each open file, by type of record.
func (f *files) counts() map[string]int {
	n := make(map[string]int, len(f.records))
	for typ, file := range f.records {
		n[typ] = file.Count()
	}
	delete(n, store.PageType)
	return n
}

// sync syncs all records to disk.
func (f *files) sync() error {
	for _, typ := range slices.Sorted(maps.Keys(f.dirty)) {
		if err := f.records[typ].Sync(); err != nil {
			return err
		}
	}
	clear(f.dirty)
	if f.changes == nil {
		return nil
	}
	return f.changes.Sync()
}

func (f *files) close() error {
	err := closeEach(f.records)
	if f.changes != nil {
		err = errors.Join(err, f.changes.Close())
	}
	f.changes = nil
	clear(f.dirty)
	return errors.Join(err, closeEach(f.books))
}

// closeEach closes the members of a map and empties it.
func closeEach[C io.Closer](open map[string]C) error {
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(open)) {
		errs = append(errs, open[name].Close())
	}
	clear(open)
	return errors.Join(errs...)
}

// sinkTimeout limits the time of a sink for a batch, so that a hanging sink is reported.
const sinkTimeout = 2 * time.Minute

// sinks are the sinks of a job in addition to its files. They are opened on demand, and again after an error.
type sinks struct {
	addresses []string
	options   sink.Options
	open      map[string]sink.Sink // by address
	next      int                  // position in the sequence of records that a retry repeats
	delivered map[string]int       // received records of the sequence, by address
}

// sinkError is an error of a sink other than the files.
type sinkError struct{ error }

func (e sinkError) Unwrap() error { return e.error }

// put delivers the next records of a sequence to all sinks, even if some fail. When the sequence is repeated after a failure, a
// sink does not receive records twice.
func (s *sinks) put(ctx context.Context, records []sink.Record) error {
	var errs []error
	from := s.next
	s.next += len(records)
	for _, address := range s.addresses {
		received := max(s.delivered[address]-from, 0)
		if received >= len(records) {
			continue
		}
		n, err := s.putTo(ctx, address, records[received:])
		s.delivered[address] = from + received + n
		if err != nil {
			errs = append(errs, sinkError{err})
		}
	}
	return errors.Join(errs...)
}

func (s *sinks) putTo(ctx context.Context, address string, records []sink.Record) (int, error) {
	ctx, cancel := context.WithTimeout(ctx, sinkTimeout)
	defer cancel()
	to, err := s.sink(ctx, address)
	if err != nil {
		return 0, err
	}
	n, err := to.Put(ctx, records)
	if err != nil {
		delete(s.open, address) // its state is unknown
		err = errors.Join(err, to.Close())
	}
	return n, err
}

func (s *sinks) sink(ctx context.Context, address string) (sink.Sink, error) {
	if to, ok := s.open[address]; ok {
		return to, nil
	}
	to, err := sink.Open(ctx, address, s.options)
	if err == nil {
		s.open[address] = to
	}
	return to, err
}

// upload stores a finished file in the sinks for files.
func (s *sinks) upload(ctx context.Context, file, name string) error {
	for _, address := range s.addresses {
		if !strings.HasPrefix(address, "s3:") { // the others are opened for records
			continue
		}
		to, err := s.sink(ctx, address)
		if err == nil {
			err = to.(sink.Uploader).Upload(ctx, file, name)
		}
		if err != nil {
			return sinkError{err}
		}
	}
	return nil
}
