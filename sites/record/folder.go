package record

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"

	"github.com/gofrs/flock"

	"muster/internal/wrap"
)

// nameFile is the file with the name of its directory.
const nameFile = ".muster-home"

// FolderName returns the name of a records directory. It creates the directory and its name if they do not exist. Processes that
// read the same name share the directory.
func FolderName(dir string) (string, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", fmt.Errorf("create records directory: %w", err)
	}
	path := filepath.Join(dir, nameFile)
	if name := readName(dir); name != "" {
		return name, nil
	}
	tmp, err := os.CreateTemp(dir, nameFile+"-*")
	if err != nil {
		return "", fmt.Errorf("name records directory: %w", err)
	}
	defer os.Remove(tmp.Name())
	_, err = tmp.WriteString(rand.Text() + "\n")
	if err = errors.Join(err, tmp.Close()); err != nil {
		return "", fmt.Errorf("name records directory: %w", err)
	}
	// Only one of several concurrent processes creates the file, and it is complete.
	if err := os.Link(tmp.Name(), path); err != nil && !errors.Is(err, fs.ErrExist) {
		return "", fmt.Errorf("name records directory: %w", err)
	}
	if name := readName(dir); name != "" {
		return name, nil
	}
	return "", fmt.Errorf("%s is not a valid directory name; remove the file", path)
}

// aName matches names of directories.
var aName = regexp.MustCompile(`^[!-~]{1,100}$`)

// readName returns the name of a directory, or "" if it has none on this machine.
func readName(dir string) string {
	data, err := os.ReadFile(filepath.Join(dir, nameFile))
	name := strings.TrimSpace(string(data))
	if err != nil || !aName.MatchString(name) {
		return ""
	}
	return name
}

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
	return wrap.Err(d.file.Close(), "unlock %s", dir)
}
