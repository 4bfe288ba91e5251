//go:build unix

package redisd

import (
	"io/fs"
	"os"
	"syscall"
)

// ownedByUs reports whether a file belongs to the user of this process, and to
// whom it belongs.
func ownedByUs(info fs.FileInfo) (uid int, ours bool) {
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return -1, false
	}
	return int(stat.Uid), int(stat.Uid) == os.Geteuid()
}

// readableByOthers reports whether the permissions of a file let its group or
// everyone do anything with it.
func readableByOthers(info fs.FileInfo) bool { return info.Mode().Perm()&0o077 != 0 }
