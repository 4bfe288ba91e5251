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
	first := testutil.Must(tryLock(path))(t)
	fd := testutil.Must(unix.Dup(int(first.f.Fd())))(t)
	defer unix.Close(fd)
	first.release()
	second := testutil.Must(tryLock(path))(t)
	second.release()
}
