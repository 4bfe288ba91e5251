package archive

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/gofrs/flock"

	"muster/sites/sink"
)

// file is a JSONL file with an ArchivedWorkflow in each line. A workflow that was retried has a line for each end, the last of which counts.
type file struct {
	out  *sink.JSONL
	lock *flock.Flock
}

// line is a document with the key by which the file has it once.
type line struct {
	Key string `json:"_key"`
	ArchivedWorkflow
}

func openFile(path string) (store, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, fmt.Errorf("create the directory of the archive: %w", err)
	}
	lock := flock.New(path+".lock", flock.SetPermissions(0o600)) // a process that was suspended may still write
	if ok, err := lock.TryLock(); err != nil || !ok {
		return nil, errors.Join(err, fmt.Errorf("%s is locked by another process", path))
	}
	out, err := sink.OpenJSONL(path)
	if err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	return &file{out, lock}, nil
}

func (f *file) put(_ context.Context, list []ArchivedWorkflow) error {
	for i := range list {
		d := &list[i]
		l := line{fmt.Sprintf("%s %d %d", d.ID, d.CreatedAt.UnixMilli(), d.EndedAt.UnixMilli()), *d}
		raw, err := json.Marshal(l)
		if err == nil {
			_, err = f.out.Put(l.Key, raw)
		}
		if err != nil {
			return err
		}
	}
	return f.out.Sync()
}

// Close closes the file.
func (f *file) Close() error {
	return errors.Join(f.out.Close(), f.lock.Close())
}
