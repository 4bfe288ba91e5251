package supervise

import (
	"errors"
	"os/exec"
	"syscall"

	"golang.org/x/sys/unix"
)

// ownGroup puts the child in a process group of its own, so that a Ctrl-C on
// the terminal reaches only its supervisor, and has the kernel signal it when
// the thread that started it dies: that thread must live as long as the child.
func ownGroup(cmd *exec.Cmd, parentDeath syscall.Signal) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: parentDeath}
}

// awaitExit blocks until the process has ended, without reaping it: until it
// is reaped no other process can get its pid, and its group can be signalled safely.
func awaitExit(pid int) {
	for {
		err := unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOWAIT, nil)
		if !errors.Is(err, unix.EINTR) {
			return
		}
	}
}
