//go:build unix && !linux

package supervise

import (
	"context"
	"fmt"
	"os/exec"
	"strconv"
	"strings"
	"time"
)

// Identify returns the identity of the running process pid. It uses ps.
func Identify(pid int) (Identity, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()

	ask := func(column string) (string, error) {
		cmd := exec.CommandContext(ctx, "ps", "-o", column+"=", "-p", strconv.Itoa(pid))
		cmd.Env = []string{"LC_ALL=C", "PATH=/bin:/usr/bin:/usr/sbin:/sbin"}
		out, err := cmd.Output()
		if err != nil {
			return "", fmt.Errorf("identify process %d: %w: ps: %w", pid, ErrUnknown, err)
		}
		return strings.TrimSpace(string(out)), nil
	}
	start, err := ask("lstart")
	if err != nil {
		return Identity{}, err
	}
	exe, err := ask("comm")
	if err != nil {
		return Identity{}, err
	}
	state, err := ask("stat")
	if err != nil {
		return Identity{}, err
	}
	if start == "" || exe == "" || strings.HasPrefix(state, "Z") {
		return Identity{}, fmt.Errorf("identify process %d: %w", pid, ErrUnknown)
	}
	return Identity{PID: pid, Start: start, Exe: exe}, nil
}
