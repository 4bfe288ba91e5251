//go:build unix

package api

import "syscall"

// connectionLimit returns how many connections a listener may have: half of the files that the process may open.
func connectionLimit() int {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return mostConnections
	}
	return int(min(uint64(limit.Cur)/2, mostConnections))
}
