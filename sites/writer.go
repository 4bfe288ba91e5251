package sites

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"muster/sites/ledger"
	"muster/sites/sink"
	"muster/tasks/workqueue"
)

//go:embed lua/own.lua
var ownLua string

var ownCmd = redis.NewScript(ownLua)

const (
	writerTTL  = 15 * time.Second // how long a writer may be silent before another takes over
	writeBatch = 500              // records between two syncs
)

// errNotWriter says that another process writes the records of the job, or
// that its folder is not here.
var errNotWriter = errors.New("another process writes the records")

// Writer moves the records of a job from its queue's output stream to files
// and sinks. All processes that see the job's folder may have one; a lease
// lets one of them write at a time. A record leaves Redis only when it is safe
// everywhere, and what a crash makes a writer read twice is told by its key.
type Writer struct {
	rdb   redis.UniversalClient
	owner string // names this writer: a job that goes on with another has one of its own
	site  string
	job   string
	run   string
	out   *workqueue.Outputs
	root  string // the folder for the records of all jobs
	home  string // its name; "": it is shared by all
	sees  func(dir string) string
	dir   string // of this job
	to    []string
	watch map[string][]string // by type, the fields whose changes count
	opts  sink.Options
	now   func() time.Time

	mu      sync.Mutex // guards what is open; held while records are written
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

// here tells whether this process sees the folder of the job.
func (w *Writer) here() bool { return w.home == "" || w.sees(w.root) == w.home }

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
		for sleep(ctx, writerTTL/3) == nil {
			if err := w.renew(ctx); errors.Is(err, errNotWriter) {
				cancel(err)
			}
		}
	}()
	err := fn(ctx)
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
	state, err := ownCmd.Run(ctx, w.rdb, []string{writerKey(w.job)}, w.owner, writerTTL.Milliseconds(), keep.Milliseconds()).Int()
	switch {
	case err != nil:
		return fmt.Errorf("become the writer of job %s: %w", w.job, err)
	case state == 0:
		return errNotWriter
	case state == 1:
		// Somebody else has written since: the files are not as we knew them.
		return w.close()
	}
	return nil
}

// renew keeps this process the writer. That another one was the writer
// meanwhile is the end of it.
func (w *Writer) renew(ctx context.Context) error {
	state, err := ownCmd.Run(ctx, w.rdb, []string{writerKey(w.job)}, w.owner, writerTTL.Milliseconds(), keep.Milliseconds()).Int()
	if err == nil && state != 2 {
		return errNotWriter
	}
	return err
}

// release lets another process write at once.
func (w *Writer) release(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	if err := ownCmd.Run(ctx, w.rdb, []string{writerKey(w.job)}, w.owner, 0, keep.Milliseconds()).Err(); err != nil {
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
		if err := w.tell(ctx); err != nil {
			return wrote, err
		}
		if err := w.out.Ack(ctx, batch[len(batch)-1].Seq); err != nil {
			return wrote, fmt.Errorf("acknowledge records of job %s: %w", w.job, err)
		}
		w.taken = nil
	}
}

// tell notes how many records are written, and that all is well.
func (w *Writer) tell(ctx context.Context) error {
	args := []any{}
	for typ, f := range w.files {
		args = append(args, typ, f.Count())
	}
	pipe := w.rdb.Pipeline()
	if len(args) > 0 {
		pipe.HSet(ctx, writtenKey(w.job), args...)
	}
	pipe.HDel(ctx, writtenKey(w.job), troubleField)
	pipe.Expire(ctx, writtenKey(w.job), keep)
	if _, err := pipe.Exec(ctx); err != nil {
		return fmt.Errorf("count the records of job %s: %w", w.job, err)
	}
	return nil
}

const troubleField = "!trouble"

// trouble notes why the writer cannot go on.
func (w *Writer) trouble(ctx context.Context, why error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	return w.rdb.HSet(ctx, writtenKey(w.job), troubleField, why.Error()).Err()
}

// troubleOf reads why the records of a job cannot be written, or "".
func troubleOf(ctx context.Context, rdb redis.UniversalClient, job string) (string, error) {
	why, err := rdb.HGet(ctx, writtenKey(job), troubleField).Result()
	if err != nil && !errors.Is(err, redis.Nil) {
		return "", fmt.Errorf("look at the writer of job %s: %w", job, err)
	}
	return why, nil
}

// written reads how many records are written, by type, and why not more are.
func written(ctx context.Context, rdb redis.UniversalClient, job string) (byType map[string]int, trouble string, err error) {
	all, err := rdb.HGetAll(ctx, writtenKey(job)).Result()
	if err != nil {
		return nil, "", fmt.Errorf("count the records of job %s: %w", job, err)
	}
	byType = map[string]int{}
	for typ, n := range all {
		if typ != troubleField {
			byType[typ], _ = strconv.Atoi(n) // nobody else writes it
		}
	}
	return byType, all[troubleField], nil
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
		r, err := w.compare(h, o.Data)
		if err != nil {
			return wrote, err
		}
		f, err := w.file(h.Type)
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
		if err := w.note(r); err != nil {
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
func (w *Writer) note(r sink.Record) error {
	if r.Change == string(ledger.Unchanged) {
		return nil
	}
	if w.changes == nil {
		var err error
		if w.changes, err = sink.OpenJSONL(w.changesPath()); err != nil {
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

func (w *Writer) file(typ string) (*sink.JSONL, error) {
	if f, ok := w.files[typ]; ok {
		return f, nil
	}
	if err := sink.Restore(w.path(typ)); err != nil { // of a job that is gone on with
		return nil, err
	}
	f, err := sink.OpenJSONL(w.path(typ))
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

func ledgerPath(root, site, typ string) string {
	return filepath.Join(root, site, "ledger", typ+".ledger")
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
