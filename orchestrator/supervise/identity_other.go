//go:build !unix

package supervise

import "fmt"

// Identify does not know this system, so that nothing is ever taken for a
// leftover of ours.
func Identify(pid int) (Identity, error) {
	return Identity{}, fmt.Errorf("identify process %d: %w", pid, ErrUnknown)
}
