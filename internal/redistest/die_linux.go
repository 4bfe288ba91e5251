package redistest

import "syscall"

// dieWithUs makes the kernel kill the child when this process terminates, even by kill -9.
func dieWithUs() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}
