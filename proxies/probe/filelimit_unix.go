//go:build unix

package probe

import "golang.org/x/sys/unix"

// fileLimit returns the maximum number of file descriptors of this process.
func fileLimit() uint64 {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return 1024
	}
	return min(uint64(limit.Cur), 1<<20)
}
