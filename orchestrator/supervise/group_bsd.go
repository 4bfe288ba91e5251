//go:build unix && !linux

package supervise

import (
	"os/exec"
	"syscall"
)

// ownGroup puts the child in a process group of its own, so that a Ctrl-C on
// the terminal reaches only its supervisor.
func ownGroup(cmd *exec.Cmd, _ syscall.Signal) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
}

// awaitExit does nothing here: Wait follows.
func awaitExit(int) {}
