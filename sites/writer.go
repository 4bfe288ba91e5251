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
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

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

// errNotWriter says that another process writes the records of the job.
var errNotWriter = errors.New("another process writes the records")

// Writer moves the records of a job from its queue's output stream to files.
// All processes may have one; a lease lets one of them write at a time. A
// record leaves Redis only when it is on the disk, and what a crash makes a
// writer read twice is told by its key.
type Writer struct {
	rdb   redis.UniversalClient
	owner string // names this process
	job   string
	dir   string
	out   *workqueue.Outputs

	mu    sync.Mutex // guards sinks; held while records are written
	sinks map[string]*sink.JSONL
}

// recordHead is the part of a record that a writer looks at.
type recordHead struct {
	Type string `json:"_type"`
	Key  string `json:"_key"`
}

// Drain writes what there is and returns how many records were new. When
// another process is the writer, it returns errNotWriter.
func (w *Writer) Drain(ctx context.Context) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	wrote := 0
	for {
		state, err := ownCmd.Run(ctx, w.rdb, []string{writerKey(w.job)}, w.owner, writerTTL.Milliseconds(), keep.Milliseconds()).Int()
		if err != nil {
			return wrote, fmt.Errorf("become the writer of job %s: %w", w.job, err)
		}
		if state == 0 {
			return wrote, errNotWriter
		}
		if state == 1 {
			// Somebody else has written since: the files are not as we knew them.
			if err := w.close(); err != nil {
				return wrote, err
			}
		}
		batch, err := w.out.Read(ctx, writeBatch, 0)
		if err != nil {
			return wrote, fmt.Errorf("read records of job %s: %w", w.job, err)
		}
		if len(batch) == 0 {
			return wrote, w.release(ctx)
		}
		n, err := w.write(batch)
		if err != nil {
			return wrote, errors.Join(err, w.close(), w.release(ctx))
		}
		wrote += n
		if err := w.out.Ack(ctx, batch[len(batch)-1].Seq); err != nil {
			return wrote, fmt.Errorf("acknowledge records of job %s: %w", w.job, err)
		}
	}
}

// release lets another process write at once.
func (w *Writer) release(ctx context.Context) error {
	if err := ownCmd.Run(ctx, w.rdb, []string{writerKey(w.job)}, w.owner, 0, keep.Milliseconds()).Err(); err != nil {
		return fmt.Errorf("give up writing job %s: %w", w.job, err)
	}
	return nil
}

// write puts a batch on the disk.
func (w *Writer) write(batch []workqueue.Output) (int, error) {
	wrote := 0
	touched := map[string]*sink.JSONL{}
	for _, o := range batch {
		var h recordHead
		if err := json.Unmarshal(o.Data, &h); err != nil {
			return wrote, fmt.Errorf("record %d of item %s cannot be read: %w", o.Index, o.Item, err)
		}
		s, err := w.sink(h.Type)
		if err != nil {
			return wrote, err
		}
		fresh, err := s.Put(h.Key, o.Data)
		if err != nil {
			return wrote, err
		}
		if fresh {
			wrote++
		}
		touched[h.Type] = s
	}
	for _, s := range touched {
		if err := s.Sync(); err != nil {
			return wrote, err
		}
	}
	return wrote, nil
}

func (w *Writer) sink(typ string) (*sink.JSONL, error) {
	if s, ok := w.sinks[typ]; ok {
		return s, nil
	}
	s, err := sink.OpenJSONL(w.path(typ))
	if err != nil {
		return nil, err
	}
	if w.sinks == nil {
		w.sinks = map[string]*sink.JSONL{}
	}
	w.sinks[typ] = s
	return s, nil
}

func (w *Writer) path(typ string) string { return filepath.Join(w.dir, typ+".jsonl") }

// counts opens the files of all types of record, so that each is there even
// when it is empty, and returns how many records each has.
func (w *Writer) counts(types []string) (byType map[string]int, files []string, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	byType = map[string]int{}
	for _, typ := range types {
		s, err := w.sink(typ)
		if err != nil {
			return nil, nil, err
		}
		byType[typ] = s.Count()
		files = append(files, s.Path())
	}
	return byType, files, nil
}

// total is how many records the files have that this process has open.
func (w *Writer) total() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := 0
	for _, s := range w.sinks {
		n += s.Count()
	}
	return n
}

// Close closes the files.
func (w *Writer) Close() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.close()
}

func (w *Writer) close() error {
	var errs []error
	for _, typ := range slices.Sorted(maps.Keys(w.sinks)) {
		errs = append(errs, w.sinks[typ].Close())
	}
	w.sinks = nil
	return errors.Join(errs...)
}
