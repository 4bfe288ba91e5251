package record

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/gofrs/flock"
)

// ErrNotWriter means that another process writes the records of a job, or that this process must not or cannot.
var ErrNotWriter = errors.New("another process writes the records")

// lockFile is the name of the locked file in the directory of a site. It names the process that has locked it.
const lockFile = ".lock"

// locks are the directories of sites that this process has locked for its jobs. The system unlocks them when the process ends; a
// suspended process keeps them. It is safe for concurrent use. The zero value is ready to use.
type locks struct {
	mu   sync.Mutex
	held map[string]*dirLock // by directory
}

type dirLock struct {
	file *flock.Flock
	runs map[string]string // by job, the workflow that writes its files: one, also within this process
}

// acquire locks the directory of a site for a workflow that writes the records of a job. The error is ErrNotWriter, with the other
// process or workflow, if another one has locked it. A workflow that resumes a job writes the same files as the first.
func (l *locks) acquire(dir, job, run string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if d := l.held[dir]; d != nil {
		if other := d.runs[job]; other != "" && other != run {
			return fmt.Errorf("%w: %s writes the same files", ErrNotWriter, other)
		}
		d.runs[job] = run
		return nil
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("create the directory of a site: %w", err)
	}
	path := filepath.Join(dir, lockFile)
	file := flock.New(path, flock.SetPermissions(0o600))
	switch ok, err := file.TryLock(); {
	case err != nil:
		return fmt.Errorf("lock %s: %w", path, err)
	case !ok:
		other, _ := os.ReadFile(path) // only for the message
		return fmt.Errorf("%w: %s is locked by %s", ErrNotWriter, dir, strings.TrimSpace(string(other)))
	}
	host, _ := os.Hostname()
	if err := os.WriteFile(path, fmt.Appendf(nil, "process %d on %s\n", os.Getpid(), host), 0o600); err != nil {
		return errors.Join(fmt.Errorf("lock %s: %w", path, err), file.Close())
	}
	if l.held == nil {
		l.held = map[string]*dirLock{}
	}
	l.held[dir] = &dirLock{file, map[string]string{job: run}}
	return nil
}

// release unlocks the directory of a site after the release of its last job.
func (l *locks) release(dir, job, run string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	d := l.held[dir]
	if d == nil || d.runs[job] != run {
		return nil
	}
	if delete(d.runs, job); len(d.runs) > 0 {
		return nil
	}
	delete(l.held, dir)
	if err := d.file.Close(); err != nil {
		return fmt.Errorf("unlock %s: %w", dir, err)
	}
	return nil
}
