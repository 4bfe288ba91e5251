//go:build unix

package api

import "syscall"

// connectionLimit returns the maximum number of connections of a listener: half of the process's limit of open files.
func connectionLimit() int {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return mostConnections
	}
	return int(min(uint64(limit.Cur)/2, mostConnections))
}
