package orchestrator

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"sync"
	"time"

	"muster/internal/addressfilter"
	"muster/jobs"
	"muster/jobs/document"
)

// Documents is the folder of the documents of jobs. It is opened by its first use: processes that only run tasks need
// none. It may be used by many goroutines at once.
type Documents struct {
	dir     string
	limit   int64 // bytes of a document
	filter  *addressfilter.Filter
	storeID func(context.Context) (string, error) // of the Redis that has the jobs

	mu    sync.Mutex // guards store
	store *document.Store
}

func (d *Documents) open(ctx context.Context) (*document.Store, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.store != nil {
		return d.store, nil
	}
	id, err := d.storeID(ctx)
	if err != nil {
		return nil, err
	}
	d.store, err = document.Open(d.dir, id)
	if err != nil {
		return nil, fmt.Errorf("documents: %w", err)
	}
	return d.store, nil
}

// Check returns an error if the folder cannot be used, or is that of another Redis.
func (d *Documents) Check(ctx context.Context) error {
	s, err := d.open(ctx)
	if err != nil {
		return err
	}
	return s.Check()
}

// Put stores what r has; see document.Store.
func (d *Documents) Put(ctx context.Context, name string, r io.Reader) (jobs.Document, error) {
	s, err := d.open(ctx)
	if err != nil {
		return jobs.Document{}, err
	}
	return s.Put(ctx, name, r, d.limit)
}

// PutFile stores a file of this machine; see document.Store.
func (d *Documents) PutFile(ctx context.Context, path string) (jobs.Document, error) {
	s, err := d.open(ctx)
	if err != nil {
		return jobs.Document{}, err
	}
	return s.PutFile(ctx, path, d.limit)
}

// Fetch stores what is at a URL; see document.Store.
func (d *Documents) Fetch(ctx context.Context, url string) (jobs.Document, error) {
	s, err := d.open(ctx)
	if err != nil {
		return jobs.Document{}, err
	}
	return s.Fetch(ctx, url, d.limit, d.filter)
}

// Open opens the document with a hash. The caller closes it.
func (d *Documents) Open(hash string) (io.ReadCloser, error) {
	s, err := d.open(context.Background())
	if err != nil {
		return nil, err
	}
	return s.Open(hash)
}

// Sweep removes what is a day old and no job has; see document.Store. A folder that there is not yet stays so.
func (d *Documents) Sweep(ctx context.Context, used func(ctx context.Context, hash string) (bool, error)) (int, error) {
	if _, err := os.Stat(d.dir); errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	s, err := d.open(ctx)
	if err != nil {
		return 0, err
	}
	return s.Sweep(ctx, used)
}

// Remove removes the document with a hash, if there is one; see document.Store.
func (d *Documents) Remove(hash string, unused func() (bool, error)) error {
	s, err := d.open(context.Background())
	if err != nil {
		return err
	}
	return s.Remove(hash, unused)
}

// sweepEvery is how often the folder of documents is swept.
const sweepEvery = time.Hour

// sweepDocuments returns a function that sweeps the folder of documents, once an hour however often it is called. It
// may be called by one goroutine at a time.
func (s *System) sweepDocuments() func(context.Context) {
	var last time.Time
	return func(ctx context.Context) {
		if time.Since(last) < sweepEvery {
			return
		}
		last = time.Now()
		switch n, err := s.Documents.Sweep(ctx, s.Jobs.HasDocument); {
		case err != nil && ctx.Err() == nil:
			s.logger.WarnContext(ctx, "documents without a job stay in the folder of documents", "err", err)
		case n > 0:
			s.logger.InfoContext(ctx, "removed documents without a job", "files", n)
		}
	}
}
