//go:build unix

package supervise

import "syscall"

const (
	sigTerm = syscall.SIGTERM
	sigKill = syscall.SIGKILL
)

// signalGroup signals every process of the group that pid leads. The caller
// knows that pid has not been reaped.
func signalGroup(pid int, sig syscall.Signal) error { return syscall.Kill(-pid, sig) }
