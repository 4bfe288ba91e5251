//go:build unix

package supervise

import "syscall"

const (
	sigTerm = syscall.SIGTERM
	sigKill = syscall.SIGKILL
)

// signalGroup signals all processes of the group led by pid. The caller ensures that pid has not been reaped.
func signalGroup(pid int, sig syscall.Signal) error { return syscall.Kill(-pid, sig) }
