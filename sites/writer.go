package sites

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"muster/internal/atomicfile"
	"muster/sites/ledger"
	"muster/sites/sink"
	"muster/tasks/workqueue"
)

// writerLease is how long a writer may be silent before another takes over,
// unless Config.WriterLease says otherwise.
const writerLease = 15 * time.Second

const writeBatch = 500 // records between two syncs

// errNotWriter says that another process writes the records of the job, or
// that its folder is not here.
var errNotWriter = errors.New("another process writes the records")

// Writer moves the records of a job from its queue's output stream to files
// and sinks. All processes that see the job's folder may have one; a lease
// lets one of them write at a time. A record leaves Redis only when it is safe
// everywhere, and what a crash makes a writer read twice is told by its key.
//
// A writer that was stopped for longer than its lease goes on beside the one
// that took over. What it still does must change nothing: in the files by the
// rules of package sink, of which takeOver keeps the part of the new writer, and
// in Redis because only the reader of the outputs can acknowledge and count them.
type Writer struct {
	owner string        // names this Writer among all
	lease time.Duration // how long it may be silent before another takes over
	site  string
	job   string
	run   string
	out   *workqueue.Outputs
	root  string // the folder for the records of all jobs
	home  string // its name
	sees  func(dir string) string
	may   func() error // why this process must not write where the job asks to
	dir   string       // of this job
	to    []string
	watch map[string][]string // by type, the fields whose changes count
	opts  sink.Options
	now   func() time.Time

	mu      sync.Mutex       // guards what is open; held while records are written
	reader  workqueue.Reader // under whose fence the files below are open
	files   map[string]*sink.JSONL
	changes *sink.JSONL
	books   map[string]*ledger.Book
	sinks   map[string]sink.Sink
	taken   taken
	rest    time.Time     // after trouble: until when nothing is tried
	resting time.Duration // how long that was
	why     error         // the trouble
}

// A writer in trouble tries again after leastRest, then after twice as long,
// and so on up to mostRest.
const (
	leastRest = 500 * time.Millisecond
	mostRest  = 20 * time.Second
)

// recordHead is the part of a record that a writer looks at.
type recordHead struct {
	Type string `json:"_type"`
	Key  string `json:"_key"`
	URL  string `json:"_url"`
}

// changeLine is a line of changes.jsonl.
type changeLine struct {
	ID     string          `json:"_key"` // type and key
	Type   string          `json:"type"`
	Key    string          `json:"key"`
	URL    string          `json:"url"`
	Change ledger.Change   `json:"change"`
	Diff   json.RawMessage `json:"diff,omitempty"`
}

// here reports whether this process sees the folder of the job, and may write
// there and to the sinks.
func (w *Writer) here() bool {
	return w.home != "" && w.may() == nil && w.sees(w.root) == w.home
}

// Drain writes what there is and returns how many records were new. When
// another process is the writer, it returns errNotWriter.
func (w *Writer) Drain(ctx context.Context) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	wrote := 0
	err := w.hold(ctx, func(ctx context.Context) (err error) {
		wrote, err = w.drain(ctx)
		return err
	})
	return wrote, err
}

// hold runs fn while this process, and no other, is the writer.
func (w *Writer) hold(ctx context.Context, fn func(context.Context) error) error {
	if !w.here() {
		return errNotWriter
	}
	if w.now().Before(w.rest) {
		return w.why
	}
	if err := w.own(ctx); err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	renewed := make(chan struct{})
	go func() {
		defer close(renewed)
		for sleep(ctx, w.lease/3) == nil {
			if err := w.still(ctx); errors.Is(err, errNotWriter) {
				cancel(err)
			}
		}
	}()
	err := w.takeOver(ctx)
	if err != nil {
		err = errors.Join(err, w.trouble(ctx, err))
	} else {
		err = fn(ctx)
	}
	if cause := context.Cause(ctx); err != nil && errors.Is(cause, errNotWriter) {
		err = cause
	}
	cancel(nil)
	<-renewed
	switch {
	case err == nil:
		w.rest, w.resting, w.why = time.Time{}, 0, nil
	case !errors.Is(err, errNotWriter):
		w.resting = min(max(2*w.resting, leastRest), mostRest)
		w.rest, w.why = w.now().Add(w.resting), err
	}
	// Files that were written to in vain are not as we know them. Where only a
	// sink is away they are, and to read them anew takes long.
	if err != nil && !errors.As(err, new(awayError)) {
		err = errors.Join(err, w.close())
	}
	return errors.Join(err, w.release(context.WithoutCancel(ctx)))
}

func (w *Writer) own(ctx context.Context) error {
	r, err := w.out.Claim(ctx, w.owner, w.lease)
	if errors.Is(err, workqueue.ErrOtherReader) {
		return errNotWriter
	}
	if err != nil {
		return fmt.Errorf("become the writer of job %s: %w", w.job, err)
	}
	was := w.reader
	w.reader = r
	if r.Fence() != was.Fence() || r.Stale() {
		return w.close() // the files are not as we knew them, or will not be
	}
	return nil
}

// takeOver sees to it that a writer before this one that may still be at work,
// asleep or only slow, can change nothing any more. See package sink: what it has
// not given a name yet is removed first, then each file that it may have open is
// replaced by a copy.
func (w *Writer) takeOver(ctx context.Context) error {
	if !w.reader.Stale() {
		return nil
	}
	if err := errors.Join(atomicfile.Abandon(w.dir), atomicfile.Abandon(ledgerDir(w.root, w.site))); err != nil {
		return err
	}
	entries, err := os.ReadDir(w.dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("look for the files of job %s: %w", w.job, err)
	}
	for _, e := range entries {
		if filepath.Ext(e.Name()) != ".jsonl" {
			continue
		}
		if err := sink.Reclaim(filepath.Join(w.dir, e.Name()), w.fence(ctx)); err != nil {
			return err
		}
	}
	return w.mine(w.reader.Settled(ctx, w.lease))
}

// still keeps this process the writer. It fails with errNotWriter when another
// is the writer by now.
func (w *Writer) still(ctx context.Context) error { return w.mine(w.reader.Keep(ctx, w.lease)) }

// fence is still, for what changes files.
func (w *Writer) fence(ctx context.Context) sink.Fence { return func() error { return w.still(ctx) } }

// mine says what an error of the reader means to a writer.
func (w *Writer) mine(err error) error {
	if errors.Is(err, workqueue.ErrLeaseLost) {
		return errNotWriter
	}
	if err != nil {
		return fmt.Errorf("remain the writer of job %s: %w", w.job, err)
	}
	return nil
}

// release lets another process write at once.
func (w *Writer) release(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	if err := w.reader.Release(ctx); err != nil && !errors.Is(err, workqueue.ErrLeaseLost) {
		return fmt.Errorf("give up writing job %s: %w", w.job, err)
	}
	return nil
}

// drain writes batch by batch, and keeps count in Redis for those who do not
// see the files.
func (w *Writer) drain(ctx context.Context) (wrote int, err error) {
	for {
		batch, err := w.out.Read(ctx, writeBatch, 0)
		if err != nil {
			return wrote, fmt.Errorf("read records of job %s: %w", w.job, err)
		}
		if len(batch) == 0 {
			return wrote, nil
		}
		n, err := w.write(ctx, batch)
		wrote += n
		if err != nil {
			return wrote, errors.Join(err, w.trouble(ctx, err))
		}
		if err := w.ack(ctx, batch[len(batch)-1].Seq); err != nil {
			return wrote, err
		}
		w.taken = nil
	}
}

// ack lets go of the records up to seq, which are safe, and notes how many are
// written, and that all is well.
func (w *Writer) ack(ctx context.Context, seq string) error {
	notes := map[string]string{troubleNote: ""}
	for typ, f := range w.files {
		notes[typ] = strconv.Itoa(f.Count())
	}
	return w.mine(w.reader.Ack(ctx, seq, notes))
}

// The notes of a writer beside those that count: their names are no types'.
const (
	troubleNote = "!trouble" // why the writer cannot go on
	closedNote  = "!closed " // with a job's id: its Summary, as JSON, when its files are closed
)

// trouble notes why the writer cannot go on.
func (w *Writer) trouble(ctx context.Context, why error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	return w.mine(w.reader.Ack(ctx, "", map[string]string{troubleNote: why.Error()}))
}

// troubleOf reads why the records of a job cannot be written, or "".
func troubleOf(ctx context.Context, out *workqueue.Outputs) (string, error) {
	_, why, err := written(ctx, out)
	return why, err
}

// written reads how many records are written, by type, and why not more are.
func written(ctx context.Context, out *workqueue.Outputs) (byType map[string]int, trouble string, err error) {
	notes, err := out.Notes(ctx)
	if err != nil {
		return nil, "", fmt.Errorf("count records: %w", err)
	}
	byType = map[string]int{}
	for typ, n := range notes {
		if !strings.HasPrefix(typ, "!") {
			byType[typ], _ = strconv.Atoi(n) // only writers write it
		}
	}
	return byType, notes[troubleNote], nil
}

// write puts a batch on the disk and into the sinks.
func (w *Writer) write(ctx context.Context, batch []workqueue.Output) (int, error) {
	wrote := 0
	touched := map[*sink.JSONL]bool{}
	records := make([]sink.Record, 0, len(batch))
	for _, o := range batch {
		var h recordHead
		if err := json.Unmarshal(o.Data, &h); err != nil {
			return wrote, fmt.Errorf("record %d of item %s cannot be read: %w", o.Index, o.Item, err)
		}
		if _, ok := w.watch[h.Type]; !ok { // it names a file
			return wrote, fmt.Errorf("record %d of item %s is of type %q, which the definition does not have", o.Index, o.Item, h.Type)
		}
		r, err := w.compare(h, o.Data)
		if err != nil {
			return wrote, err
		}
		f, err := w.file(ctx, h.Type)
		if err != nil {
			return wrote, err
		}
		fresh, err := f.Put(h.Key, o.Data)
		if err != nil {
			return wrote, err
		}
		if fresh {
			wrote++
		}
		touched[f] = true
		if err := w.note(ctx, r); err != nil {
			return wrote, err
		}
		records = append(records, r)
	}
	for f := range touched {
		if err := f.Sync(); err != nil {
			return wrote, err
		}
	}
	if w.changes != nil {
		if err := w.changes.Sync(); err != nil {
			return wrote, err
		}
	}
	if len(w.to) == 0 {
		return wrote, nil
	}
	if err := w.still(ctx); err != nil { // not to give to sinks what another has given by now
		return wrote, err
	}
	return wrote, w.put(ctx, records)
}

// awayError says that a sink beside the files does not take records.
type awayError struct{ error }

func (e awayError) Unwrap() error { return e.error }

// sinkPatience is how long a sink may take for a batch before it counts as
// away: one that hangs must not keep that from being said.
const sinkPatience = 2 * time.Minute

// put gives records to the sinks beside the files, to each of them even when
// another is away. What a sink has taken it is not given again with the rest.
func (w *Writer) put(ctx context.Context, records []sink.Record) error {
	var errs []error
	for _, address := range w.to {
		left := w.taken.without(address, records)
		if len(left) == 0 {
			continue
		}
		n, err := w.putTo(ctx, address, left)
		w.taken.add(address, left[:n])
		if err != nil {
			errs = append(errs, awayError{err})
		}
	}
	return errors.Join(errs...)
}

func (w *Writer) putTo(ctx context.Context, address string, records []sink.Record) (int, error) {
	ctx, cancel := context.WithTimeout(ctx, sinkPatience)
	defer cancel()
	s, ok := w.sinks[address]
	if !ok {
		var err error
		if s, err = sink.Open(ctx, address, w.opts); err != nil {
			return 0, err
		}
		if w.sinks == nil {
			w.sinks = map[string]sink.Sink{}
		}
		w.sinks[address] = s
	}
	n, err := s.Put(ctx, records)
	if err != nil {
		delete(w.sinks, address) // it may not be as it was when it is back
		err = errors.Join(err, s.Close())
	}
	return n, err
}

// compare makes of a record what the sinks want to know of it.
func (w *Writer) compare(h recordHead, data []byte) (sink.Record, error) {
	r := sink.Record{Site: w.site, Job: w.job, Type: h.Type, Key: h.Key, URL: h.URL, Data: data, At: w.now(), Change: string(ledger.New)}
	b, err := w.book(h.Type)
	if err != nil {
		return r, err
	}
	change, diff, err := b.Compare(h.Key, data)
	if err != nil {
		return r, err
	}
	r.Change = string(change)
	if len(diff) > 0 {
		if r.Diff, err = json.Marshal(diff); err != nil {
			return r, fmt.Errorf("encode what changed of %s: %w", h.Key, err)
		}
	}
	return r, nil
}

// note writes a change to changes.jsonl.
func (w *Writer) note(ctx context.Context, r sink.Record) error {
	if r.Change == string(ledger.Unchanged) {
		return nil
	}
	if w.changes == nil {
		var err error
		if w.changes, err = sink.OpenJSONL(w.changesPath(), w.fence(ctx)); err != nil {
			return err
		}
	}
	line := changeLine{ID: r.Type + " " + r.Key, Type: r.Type, Key: r.Key, URL: r.URL, Change: ledger.Change(r.Change), Diff: r.Diff}
	data, err := json.Marshal(line)
	if err != nil {
		return fmt.Errorf("encode change of %s: %w", r.Key, err)
	}
	_, err = w.changes.Put(line.ID, data)
	return err
}

func (w *Writer) file(ctx context.Context, typ string) (*sink.JSONL, error) {
	if f, ok := w.files[typ]; ok {
		return f, nil
	}
	if err := sink.Restore(w.path(typ), w.fence(ctx)); err != nil { // of a job that is gone on with
		return nil, err
	}
	f, err := sink.OpenJSONL(w.path(typ), w.fence(ctx))
	if err != nil {
		return nil, err
	}
	if w.files == nil {
		w.files = map[string]*sink.JSONL{}
	}
	w.files[typ] = f
	return f, nil
}

func (w *Writer) book(typ string) (*ledger.Book, error) {
	if b, ok := w.books[typ]; ok {
		return b, nil
	}
	b, err := ledger.Open(w.bookPath(typ), w.watch[typ]...)
	if err != nil {
		return nil, err
	}
	if w.books == nil {
		w.books = map[string]*ledger.Book{}
	}
	w.books[typ] = b
	return b, nil
}

func (w *Writer) path(typ string) string     { return filepath.Join(w.dir, typ+".jsonl") }
func (w *Writer) changesPath() string        { return filepath.Join(w.dir, "changes.jsonl") }
func (w *Writer) bookPath(typ string) string { return ledgerPath(w.root, w.site, typ) }

func ledgerDir(root, site string) string { return filepath.Join(root, site, "ledger") }

func ledgerPath(root, site, typ string) string {
	return filepath.Join(ledgerDir(root, site), typ+".ledger")
}

// Close closes the files.
func (w *Writer) Close() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.close()
}

func (w *Writer) close() error {
	var errs []error
	for _, typ := range slices.Sorted(maps.Keys(w.files)) {
		errs = append(errs, w.files[typ].Close())
	}
	if w.changes != nil {
		errs = append(errs, w.changes.Close())
	}
	errs = append(errs, w.closeBooks())
	for _, address := range slices.Sorted(maps.Keys(w.sinks)) {
		errs = append(errs, w.sinks[address].Close())
	}
	w.files, w.changes, w.sinks = nil, nil, nil
	return errors.Join(errs...)
}

func (w *Writer) closeBooks() error {
	var errs []error
	for _, typ := range slices.Sorted(maps.Keys(w.books)) {
		errs = append(errs, w.books[typ].Close())
	}
	w.books = nil
	return errors.Join(errs...)
}
