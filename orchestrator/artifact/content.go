package artifact

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"muster/internal/atomicfile"
	"muster/tasks/workqueue"
)

// stalePart is the age at which a part of a content is no longer written: the
// process that wrote it was killed.
const stalePart = time.Hour

// removeStale removes the parts of contents that killed processes left in dir.
func removeStale(dir string) error {
	parts, err := filepath.Glob(filepath.Join(dir, "incoming", "*.part"))
	if err != nil {
		return err
	}
	for _, part := range parts {
		if info, err := os.Stat(part); err == nil && time.Since(info.ModTime()) > stalePart {
			_ = os.Remove(part) // another process may have done so
		}
	}
	return nil
}

// errStall is why a download ends whose host sends no more data.
var errStall = errors.New("no data was received for")

// stallReader resets a timer with each read that returns data.
type stallReader struct {
	r     io.Reader
	timer *time.Timer
	after time.Duration
}

func (s *stallReader) Read(p []byte) (int, error) {
	n, err := s.r.Read(p)
	if n > 0 {
		s.timer.Reset(s.after)
	}
	return n, err
}

// save writes a body to a file beside the contents: keep moves it into place,
// discard removes it.
func (f *Fetcher) save(body io.Reader, got *Fetched) (part string, err error) {
	dir := filepath.Join(f.cfg.Dir, "incoming")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", fmt.Errorf("keep contents: %w", err)
	}
	file, err := os.CreateTemp(dir, "*.part")
	if err != nil {
		return "", fmt.Errorf("keep contents: %w", err)
	}
	defer func() {
		if closed := file.Close(); err == nil && closed != nil {
			err = fmt.Errorf("keep contents: %w", closed)
		}
		if err != nil {
			_ = os.Remove(file.Name()) // the error that matters is the first
		}
	}()
	sum := sha256.New()
	got.Size, err = io.Copy(io.MultiWriter(file, sum), io.LimitReader(body, f.cfg.MaxBytes+1))
	if _, ours := errors.AsType[*fs.PathError](err); ours { // of the file, as the host has none
		return "", fmt.Errorf("keep contents: %w", err)
	}
	if err != nil {
		return "", fmt.Errorf("download: %w", err)
	}
	if got.Size > f.cfg.MaxBytes {
		return "", workqueue.Permanent(fmt.Errorf("it has more than the %d bytes that are allowed", f.cfg.MaxBytes))
	}
	if err := file.Sync(); err != nil {
		return "", fmt.Errorf("keep contents: %w", err)
	}
	got.SHA256 = hex.EncodeToString(sum.Sum(nil))
	got.Path = filepath.Join(got.SHA256[:2], got.SHA256)
	return file.Name(), nil
}

// keep moves a saved content into place, in one step.
func (f *Fetcher) keep(part string, got Fetched) error {
	place := filepath.Join(f.cfg.Dir, got.Path)
	if err := os.MkdirAll(filepath.Dir(place), 0o755); err != nil {
		return discard(part, fmt.Errorf("keep contents: %w", err))
	}
	if err := os.Rename(part, place); err != nil {
		return discard(part, fmt.Errorf("keep contents: %w", err))
	}
	// Its folder may be new.
	if err := errors.Join(atomicfile.SyncDir(filepath.Dir(place)), atomicfile.SyncDir(f.cfg.Dir)); err != nil {
		return fmt.Errorf("keep contents: %w", err)
	}
	return nil
}

func discard(part string, err error) error { return errors.Join(err, os.Remove(part)) }
