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

// signalGroup can only kill here, and only the process itself.
func signalGroup(pid int, _ syscall.Signal) error {
	p, err := os.FindProcess(pid)
	if err != nil {
		return err
	}
	return p.Kill()
}
