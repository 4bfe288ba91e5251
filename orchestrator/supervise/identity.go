package supervise

import (
	"errors"
	"os"
)

// ErrUnknown says that the system does not report enough about a process to
// identify it. Such a process is never signalled.
var ErrUnknown = errors.New("process cannot be identified")

// Identity identifies a process, also among later ones with the same pid. It can
// be kept in a file.
type Identity struct {
	PID   int    `json:"pid"`
	Start string `json:"start"` // when it started, in the system's own notation; with the boot on Linux
	Exe   string `json:"exe"`   // its executable
}

// Self is the identity of this process.
func Self() (Identity, error) { return Identify(os.Getpid()) }

// Alive reports whether the very process that id was taken from still runs.
// It is false when in doubt.
func (id Identity) Alive() bool {
	if id.PID <= 0 || id.Start == "" || id.Exe == "" {
		return false
	}
	now, err := Identify(id.PID)
	return err == nil && now == id
}
