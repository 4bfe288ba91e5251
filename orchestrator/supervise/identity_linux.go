package supervise

import (
	"bytes"
	"fmt"
	"os"
	"strings"
	"sync"
)

// bootID identifies the current boot, to which start times are relative.
var bootID = sync.OnceValues(func() (string, error) {
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	return strings.TrimSpace(string(b)), err
})

// Identify returns the identity of the running process pid. A zombie counts as exited.
func Identify(pid int) (Identity, error) {
	boot, err := bootID()
	if err != nil {
		return Identity{}, fmt.Errorf("identify process %d: %w: %w", pid, ErrUnknown, err)
	}
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return Identity{}, fmt.Errorf("identify process %d: %w", pid, err)
	}
	// The second field is the command in parentheses. It may contain spaces and parentheses, so skip the last one.
	_, rest, ok := bytes.Cut(stat[bytes.LastIndexByte(stat, ')')+1:], []byte(" "))
	fields := bytes.Fields(rest)
	if !ok || len(fields) < 20 {
		return Identity{}, fmt.Errorf("identify process %d: %w", pid, ErrUnknown)
	}
	if state := fields[0][0]; state == 'Z' || state == 'X' {
		return Identity{}, fmt.Errorf("identify process %d: %w", pid, os.ErrProcessDone)
	}
	return Identity{PID: pid, Start: boot + "/" + string(fields[19])}, nil
}
