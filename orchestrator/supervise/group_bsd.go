//go:build unix && !linux

package supervise

import (
	"os/exec"
	"syscall"
)

// ownGroup puts the child in a separate process group, so that Ctrl-C in the terminal signals only the supervisor.
func ownGroup(cmd *exec.Cmd, _ syscall.Signal) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
}

// awaitExit does nothing on this system. Wait follows.
func awaitExit(int) {}
