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

// pidFile is the content of a PID file.
type pidFile struct {
	Name    string   `json:"name"`
	Process Identity `json:"process"`
	Owner   Identity `json:"owner"`
}

// pidPath includes the PID of the supervisor, because supervisors may share a directory and process names.
func pidPath(dir, name string) string {
	return filepath.Join(dir, name+"."+strconv.Itoa(os.Getpid())+".pid")
}

func writePIDFile(path string, f pidFile) error {
	return atomicfile.Write(path, 0o600, func(w io.Writer) error {
		return json.NewEncoder(w).Encode(f)
	})
}

// readPIDFile reads at most 64 KB.
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

// Stale is a child that was not stopped before its supervisor exited.
type Stale struct {
	Name    string
	PID     int
	Owner   int  // PID of its supervisor
	Running bool // it was running and has been stopped
}

// CleanStale stops the children of crashed supervisors according to the PID files in dir, removes these files and returns the
// children. It stops a process only if its supervisor has exited and PID, start time and executable match the file: with
// SIGTERM, then with SIGKILL after grace. It does not affect children of running supervisors. A missing dir counts as empty. An
// unreadable file, for example after a power failure, is logged and kept.
func CleanStale(ctx context.Context, dir string, grace time.Duration, log *slog.Logger) ([]Stale, error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("find leftover processes in %s: %w", dir, err)
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
			continue // removed by its supervisor
		}
		if err != nil {
			log.Warn("skipping an unreadable PID file; stop its process if it is running, and remove the file", "file", path, "err", err)
			continue
		}
		if f.Owner.Alive() {
			continue
		}
		running, err := stopProcess(ctx, f.Process, grace)
		if err != nil {
			errs = append(errs, fmt.Errorf("stop leftover process %s (PID %d): %w", f.Name, f.Process.PID, err))
			continue
		}
		found = append(found, Stale{Name: f.Name, PID: f.Process.PID, Owner: f.Owner.PID, Running: running})
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	return found, errors.Join(errs...)
}

// stopProcess stops a process that is not a child, and reports whether it was running.
func stopProcess(ctx context.Context, id Identity, grace time.Duration) (bool, error) {
	if id.PID <= 1 || id.PID == os.Getpid() || !id.Alive() {
		return false, nil
	}
	if err := signalGroup(id.PID, sigTerm); err != nil {
		return false, err
	}
	if awaitEnd(ctx, id, grace) {
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
	if !awaitEnd(ctx, id, 5*time.Second) {
		return true, errors.New("process still running after SIGKILL")
	}
	return true, nil
}

func awaitEnd(ctx context.Context, id Identity, limit time.Duration) bool {
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

// ErrUnknown means that the system does not provide enough information to identify a process. Such a process is never
// signaled.
var ErrUnknown = errors.New("process cannot be identified")

// Identity identifies a process, even if its PID has been reused. It can be stored in a file.
type Identity struct {
	PID   int    `json:"pid"`
	Start string `json:"start"` // start time in the notation of the system; on Linux with the boot ID
	Exe   string `json:"exe"`   // executable; empty on Linux, where it changes if a script starts the program in its place
}

// Self returns the identity of this process.
func Self() (Identity, error) { return Identify(os.Getpid()) }

// Alive reports whether the identified process is running. It returns false in case of doubt.
func (id Identity) Alive() bool {
	if id.PID <= 0 || id.Start == "" {
		return false
	}
	now, err := Identify(id.PID)
	return err == nil && now == id
}
