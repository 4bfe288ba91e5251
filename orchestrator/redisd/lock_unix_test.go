//go:build unix

package redisd

import (
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// A forked child shares all files until its exec.
func TestLockIsReleasedDespiteSharedFile(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "lock")
	first, err := tryLock(path)
	if err != nil {
		t.Fatal(err)
	}
	fd, err := unix.Dup(int(first.f.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	first.release()
	second, err := tryLock(path)
	if err != nil {
		t.Fatal(err)
	}
	second.release()
}
