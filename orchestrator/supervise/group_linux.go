package supervise

import (
	"errors"
	"os/exec"
	"syscall"

	"golang.org/x/sys/unix"
)

// ownGroup puts the child in a separate process group, so that Ctrl-C in the terminal signals only the supervisor. The kernel
// signals the child when the thread that started it exits, so that thread must live as long as the child.
func ownGroup(cmd *exec.Cmd, parentDeath syscall.Signal) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: parentDeath}
}

// awaitExit blocks until the process has exited, without reaping it. Until it is reaped, its PID is not reused and its group
// can be signaled safely.
func awaitExit(pid int) {
	for {
		err := unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOWAIT, nil)
		if !errors.Is(err, unix.EINTR) {
			return
		}
	}
}
