//go:build unix

package redisd

import (
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"muster/internal/testutil"
)

// A forked child shares all files until its exec.
func TestLockIsReleasedDespiteSharedFile(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "lock")
	first, err := tryLock(path)
	testutil.Ok(t, err)
	fd, err := unix.Dup(int(first.f.Fd()))
	testutil.Ok(t, err)
	defer unix.Close(fd)
	first.release()
	second, err := tryLock(path)
	testutil.Ok(t, err)
	second.release()
}
