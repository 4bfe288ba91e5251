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

// stalePart is the age after which a partial file is abandoned, because its process was killed.
const stalePart = time.Hour

// removeStale removes abandoned partial files from dir.
func removeStale(dir string) error {
	parts, err := filepath.Glob(filepath.Join(dir, "incoming", "*.part"))
	if err != nil {
		return err
	}
	for _, part := range parts {
		if info, err := os.Stat(part); err == nil && time.Since(info.ModTime()) > stalePart {
			_ = os.Remove(part) // another process may have removed it
		}
	}
	return nil
}

// errStall is the error of a download whose host stopped sending data.
var errStall = errors.New("no data received for")

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

// save writes a body to a partial file, which keep or discard then moves or removes.
func (f *Fetcher) save(body io.Reader, got *Fetched) (part string, err error) {
	dir := filepath.Join(f.cfg.Dir, "incoming")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", fmt.Errorf("store content: %w", err)
	}
	file, err := os.CreateTemp(dir, "*.part")
	if err != nil {
		return "", fmt.Errorf("store content: %w", err)
	}
	defer func() {
		if closed := file.Close(); err == nil && closed != nil {
			err = fmt.Errorf("store content: %w", closed)
		}
		if err != nil {
			_ = os.Remove(file.Name()) // err is the relevant error
		}
	}()
	sum := sha256.New()
	got.Size, err = io.Copy(io.MultiWriter(file, sum), io.LimitReader(body, f.cfg.MaxBytes+1))
	if _, ours := errors.AsType[*fs.PathError](err); ours { // an error of the file; the host returns no PathError
		return "", fmt.Errorf("store content: %w", err)
	}
	if err != nil {
		return "", fmt.Errorf("download: %w", err)
	}
	if got.Size > f.cfg.MaxBytes {
		return "", workqueue.Permanent(fmt.Errorf("the content is larger than the limit of %d bytes", f.cfg.MaxBytes))
	}
	if err := file.Sync(); err != nil {
		return "", fmt.Errorf("store content: %w", err)
	}
	got.SHA256 = hex.EncodeToString(sum.Sum(nil))
	got.Path = filepath.Join(got.SHA256[:2], got.SHA256)
	return file.Name(), nil
}

// keep atomically moves a partial file to its final path.
func (f *Fetcher) keep(part string, got Fetched) error {
	place := filepath.Join(f.cfg.Dir, got.Path)
	if err := os.MkdirAll(filepath.Dir(place), 0o755); err != nil {
		return discard(part, fmt.Errorf("store content: %w", err))
	}
	if err := os.Rename(part, place); err != nil {
		return discard(part, fmt.Errorf("store content: %w", err))
	}
	// The directory may be new.
	if err := errors.Join(atomicfile.SyncDir(filepath.Dir(place)), atomicfile.SyncDir(f.cfg.Dir)); err != nil {
		return fmt.Errorf("store content: %w", err)
	}
	return nil
}

func discard(part string, err error) error { return errors.Join(err, os.Remove(part)) }
