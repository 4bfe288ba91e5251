package supervise

import (
	"errors"
	"os"
)

// ErrUnknown means that the system does not provide enough information to identify a process. Such a process is never
// signaled.
var ErrUnknown = errors.New("process cannot be identified")

// Identity identifies a process, even if its PID has been reused. It can be stored in a file.
type Identity struct {
	PID   int    `json:"pid"`
	Start string `json:"start"` // start time in the notation of the system; on Linux with the boot ID
	Exe   string `json:"exe"`   // executable; empty on Linux, where it changes if a script starts the program in its place
}

// Self returns the identity of this process.
func Self() (Identity, error) { return Identify(os.Getpid()) }

// Alive reports whether the identified process is running. It returns false in case of doubt.
func (id Identity) Alive() bool {
	if id.PID <= 0 || id.Start == "" {
		return false
	}
	now, err := Identify(id.PID)
	return err == nil && now == id
}
