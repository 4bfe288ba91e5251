//go:build unix

package redisd

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// lock is the exclusive right to run a Redis on a data directory. The operating system releases it when the process exits.
type lock struct{ f *os.File }

// errLocked means that another process holds the lock.
var errLocked = errors.New("locked by another process")

// tryLock acquires the lock without waiting.
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

// release releases the lock. The file remains, because two processes could otherwise lock two files of the same name.
func (l *lock) release() {
	if l != nil {
		_ = unix.Flock(int(l.f.Fd()), unix.LOCK_UN) // a forked child shares the file until its exec
		_ = l.f.Close()
	}
}
