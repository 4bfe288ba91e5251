package supervise

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"muster/internal/atomicfile"
)

// pidFile is what a pid file holds: the child and who supervises it.
type pidFile struct {
	Name    string   `json:"name"`
	Process Identity `json:"process"`
	Owner   Identity `json:"owner"`
}

// pidPath has the supervisor's pid too: two of them may share a folder and use
// the same names.
func pidPath(dir, name string) string {
	return filepath.Join(dir, name+"."+strconv.Itoa(os.Getpid())+".pid")
}

func writePIDFile(path string, f pidFile) error {
	return atomicfile.Write(path, 0o600, func(w io.Writer) error {
		return json.NewEncoder(w).Encode(f)
	})
}

// readPIDFile reads at most 64 KB: a pid file is some hundred bytes.
func readPIDFile(path string) (pidFile, error) {
	file, err := os.Open(path)
	if err != nil {
		return pidFile{}, err
	}
	defer file.Close()
	var f pidFile
	if err := json.NewDecoder(io.LimitReader(file, 64<<10)).Decode(&f); err != nil {
		return pidFile{}, fmt.Errorf("read pid file %s: %w", path, err)
	}
	return f, nil
}

// Stale is a child whose supervisor has ended without stopping it.
type Stale struct {
	Name    string
	PID     int
	Owner   int  // the pid that its supervisor had
	Running bool // it was still running, and has been stopped
}

// CleanStale stops what crashed supervisors have left running according to the
// pid files in dir, removes those files, and returns what it found. A process is
// stopped only if its supervisor has ended and its pid, start time and executable
// are those in the file: it gets SIGTERM, and SIGKILL if it still runs after
// grace. Children of a living supervisor are left alone. A missing dir is an
// empty one. A file that cannot be read, as after a power cut, stays and is
// logged.
func CleanStale(ctx context.Context, dir string, grace time.Duration, log *slog.Logger) ([]Stale, error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("look for leftovers in %s: %w", dir, err)
	}

	var found []Stale
	var errs []error
	for _, e := range entries {
		if e.IsDir() || !strings.HasSuffix(e.Name(), ".pid") || strings.HasPrefix(e.Name(), ".") {
			continue
		}
		path := filepath.Join(dir, e.Name())
		f, err := readPIDFile(path)
		if errors.Is(err, fs.ErrNotExist) {
			continue // its supervisor has just removed it
		}
		if err != nil {
			log.Warn("a pid file cannot be read and is skipped; end its process if that still runs, and remove the file", "file", path, "err", err)
			continue
		}
		if f.Owner.Alive() {
			continue
		}
		running, err := stopProcess(ctx, f.Process, grace)
		if err != nil {
			errs = append(errs, fmt.Errorf("stop leftover %s, process %d: %w", f.Name, f.Process.PID, err))
			continue
		}
		found = append(found, Stale{Name: f.Name, PID: f.Process.PID, Owner: f.Owner.PID, Running: running})
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	return found, errors.Join(errs...)
}

// stopProcess stops a process that is not our child, and reports whether it
// was running.
func stopProcess(ctx context.Context, id Identity, grace time.Duration) (bool, error) {
	if id.PID <= 1 || id.PID == os.Getpid() || !id.Alive() {
		return false, nil
	}
	if err := signalGroup(id.PID, sigTerm); err != nil {
		return false, err
	}
	if awaitGone(ctx, id, grace) {
		return true, nil
	}
	if ctx.Err() != nil {
		return true, ctx.Err()
	}
	if id.Alive() {
		if err := signalGroup(id.PID, sigKill); err != nil && id.Alive() {
			return true, err
		}
	}
	if !awaitGone(ctx, id, 5*time.Second) {
		return true, errors.New("it does not die")
	}
	return true, nil
}

func awaitGone(ctx context.Context, id Identity, limit time.Duration) bool {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for id.Alive() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return !id.Alive()
		}
	}
	return true
}
