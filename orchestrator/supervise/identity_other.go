//go:build !unix

package supervise

import "fmt"

// Identify always fails on this system, so that no process is treated as a leftover.
func Identify(pid int) (Identity, error) {
	return Identity{}, fmt.Errorf("identify process %d: %w", pid, ErrUnknown)
}
