package record

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strconv"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"muster/internal/atomicfile"
	"muster/sites/definition"
	"muster/sites/internal/store"
	"muster/sites/ledger"
	"muster/sites/report"
	"muster/sites/sink"
	"muster/tasks/workqueue"
)

// A writer moves the records of a job from the output stream of its queue to files and sinks. Each process with access to the
// job's directory may have one; a lock allows one of them to write at a time. A record is removed from Redis only after all
// files and sinks have it. The key identifies a record that is read twice, as after a crash.
type writer struct {
	id      string // job with the pages and records
	run     string // workflow; differs from id if it resumes a job
	req     store.Request
	def     *definition.Definition
	rdb     redis.UniversalClient
	queue   *workqueue.Queue
	out     *workqueue.Outputs
	locks   *locks
	siteDir string
	may     func() error // error if this process must not or cannot write
	log     *slog.Logger

	judged    func(context.Context, report.Health, report.HealthStatus) error // see Config; may be nil
	lastCheck time.Time                                                       // last check of Recorder whether the workflow has terminated

	mu     sync.Mutex // guards the fields below; held while records are written
	locked bool
	known  bool // loadKnown has succeeded
	files  files
	sinks  sinks
	rest   backOff
}

// After a failed write a writer retries after minBackOff, then after twice as long, and so on up to maxBackOff.
const (
	minBackOff = 500 * time.Millisecond
	maxBackOff = 20 * time.Second
)

// backOff is the pause after a failure.
type backOff struct {
	until time.Time
	last  time.Duration
	err   error // the failure
}

func (b *backOff) fail(err error) {
	b.last = min(max(2*b.last, minBackOff), maxBackOff)
	b.until, b.err = time.Now().Add(b.last), err
}

// drain writes all unwritten records and returns the number of new ones. The error is ErrNotWriter if another process is the
// writer.
func (w *writer) drain(ctx context.Context) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	wrote := 0
	err := w.hold(ctx, func(ctx context.Context) (err error) {
		if err := w.loadKnown(ctx); err != nil {
			return w.report(ctx, err)
		}
		wrote, err = w.writeAll(ctx)
		return err
	})
	return wrote, err
}

// hold runs fn while this process has locked the directory of the site. The lock remains until close.
func (w *writer) hold(ctx context.Context, fn func(context.Context) error) error {
	if w.may() != nil {
		return ErrNotWriter
	}
	if time.Now().Before(w.rest.until) {
		return w.rest.err
	}
	err := w.lock()
	if errors.Is(err, ErrNotWriter) {
		return err
	}
	if err == nil {
		err = fn(ctx)
	} else {
		err = w.report(ctx, err)
	}
	if err == nil {
		w.rest = backOff{}
		return nil
	}
	w.rest.fail(err)
	// After a failed write the state of the files is unknown, so they are reopened. After an error of a sink it is known, and
	// reopening would take long.
	if !errors.As(err, new(sinkError)) {
		err = errors.Join(err, w.closeAll())
	}
	return err
}

// lock locks the directory of the site, and removes temporary files of an earlier process.
func (w *writer) lock() error {
	if w.locked {
		return nil
	}
	if err := w.locks.acquire(w.siteDir, w.id, w.run); err != nil {
		return err
	}
	w.locked = true
	return errors.Join(atomicfile.Abandon(w.files.dir), atomicfile.Abandon(w.files.ledgers))
}

// report stores an error that prevents writing, and returns it.
func (w *writer) report(ctx context.Context, trouble error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	return errors.Join(trouble, w.out.Ack(ctx, "", map[string]string{store.TroubleNote: trouble.Error()}))
}

const writeBatch = 500 // records between two syncs

// writeAll writes batch by batch and stores counts in Redis for processes without access to the files.
func (w *writer) writeAll(ctx context.Context) (wrote int, err error) {
	for {
		batch, err := w.out.Read(ctx, writeBatch, 0)
		if err != nil {
			return wrote, fmt.Errorf("read records of job %s: %w", w.id, err)
		}
		if len(batch) == 0 {
			return wrote, nil
		}
		n, err := w.write(ctx, batch)
		wrote += n
		if err != nil {
			return wrote, w.report(ctx, err)
		}
		notes := map[string]string{store.TroubleNote: ""}
		for typ, n := range w.files.counts() {
			notes[typ] = strconv.Itoa(n)
		}
		if err := w.out.Ack(ctx, batch[len(batch)-1].Seq, notes); err != nil {
			return wrote, err
		}
		clear(w.sinks.delivered)
	}
}

// write writes a batch to disk and to the sinks.
func (w *writer) write(ctx context.Context, batch []workqueue.Output) (int, error) {
	wrote := 0
	records := make([]sink.Record, 0, len(batch))
	for _, o := range batch {
		r, err := w.record(o)
		if err != nil {
			return wrote, err
		}
		if r.Type == store.FileType {
			if err := w.putFile(ctx, r); err != nil {
				return wrote, err
			}
			continue
		}
		fresh, err := w.files.put(r)
		if err != nil {
			return wrote, err
		}
		if r.Type == store.PageType {
			continue
		}
		if fresh {
			wrote++
		}
		records = append(records, r)
	}
	if err := w.files.sync(); err != nil {
		return wrote, err
	}
	if len(w.sinks.addresses) == 0 {
		return wrote, nil
	}
	w.sinks.next = 0
	return wrote, w.sinks.put(ctx, records)
}

// fileName matches names of downloaded files.
var fileName = regexp.MustCompile(`^[0-9a-f]{32}(\.[a-z0-9]{1,5})?$`)

// putFile writes a downloaded file to the directory of the site and to the sinks for files.
func (w *writer) putFile(ctx context.Context, r sink.Record) error {
	var f store.File
	if err := json.Unmarshal(r.Data, &f); err != nil || !fileName.MatchString(f.Name) {
		return fmt.Errorf("invalid file %.100q in Redis: %v", r.Key, err)
	}
	file := filepath.Join(w.siteDir, "files", f.Name)
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		return fmt.Errorf("create the directory of files: %w", err)
	}
	if err := atomicfile.WriteBytes(file, 0o600, f.Data); err != nil {
		return fmt.Errorf("store a file: %w", err)
	}
	return w.sinks.upload(ctx, file, path.Join(w.def.Site, "files", f.Name))
}

// head is the identifying part of a record.
type head struct {
	store.Ref
	URL string `json:"_url"`
}

// record decodes an output.
func (w *writer) record(o workqueue.Output) (sink.Record, error) {
	var h head
	if err := json.Unmarshal(o.Data, &h); err != nil {
		return sink.Record{}, fmt.Errorf("decode record %d of item %s: %w", o.Index, o.Item, err)
	}
	if _, ok := w.files.watch[h.Type]; !ok && h.Type != store.FileType { // the type is part of a file name
		return sink.Record{}, fmt.Errorf("record %d of item %s has type %q, which is not in the definition", o.Index, o.Item, h.Type)
	}
	if h.Type == store.FileType || h.Type == store.PageType {
		return sink.Record{Type: h.Type, Key: h.Key, Data: o.Data}, nil
	}
	if h.Same {
		if err := w.recall(&h, &o.Data); err != nil {
			return sink.Record{}, err
		}
	}
	r := sink.Record{Site: w.def.Site, Job: w.id, Type: h.Type, Key: h.Key, URL: h.URL, Data: o.Data, At: time.Now(), Change: string(ledger.New)}
	return r, w.files.compare(&r)
}

// close closes the files and sinks, which are reopened on demand, and unlocks the directory.
func (w *writer) close() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.locked = false
	return errors.Join(w.closeAll(), w.locks.release(w.siteDir, w.id, w.run))
}

func (w *writer) closeAll() error { return errors.Join(w.files.close(), closeEach(w.sinks.open)) }
