//go:build !unix

package supervise

import (
	"os"
	"os/exec"
	"syscall"
)

const (
	sigTerm = syscall.SIGTERM
	sigKill = syscall.SIGKILL
)

func ownGroup(*exec.Cmd, syscall.Signal) {}

func awaitExit(int) {}

// signalGroup kills the process. Other signals and process groups are not supported on this system.
func signalGroup(pid int, _ syscall.Signal) error {
	p, err := os.FindProcess(pid)
	if err != nil {
		return err
	}
	return p.Kill()
}
