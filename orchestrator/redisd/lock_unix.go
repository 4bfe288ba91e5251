//go:build unix

package redisd

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// lock is the right to run a Redis on a data folder. The system takes it back
// when its holder dies.
type lock struct{ f *os.File }

// errLocked says that another living process has the lock.
var errLocked = errors.New("locked by another process")

// tryLock takes the lock without waiting.
func tryLock(path string) (*lock, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if err == nil {
		return &lock{f}, nil
	}
	_ = f.Close()
	switch {
	case errors.Is(err, unix.EWOULDBLOCK):
		return nil, errLocked
	case errors.Is(err, unix.ENOLCK), errors.Is(err, unix.ENOTSUP), errors.Is(err, unix.ENOSYS):
		return nil, fmt.Errorf("lock %s: %w", path, errors.ErrUnsupported)
	}
	return nil, fmt.Errorf("lock %s: %w", path, err)
}

// release releases the lock. The file stays: removing it would let two
// processes hold locks on two files of one name.
func (l *lock) release() {
	if l != nil {
		_ = unix.Flock(int(l.f.Fd()), unix.LOCK_UN) // a process that is being started has the file too, until its exec
		_ = l.f.Close()
	}
}
