//go:build !unix

package redistest

import (
	"errors"
	"os"
)

// suspend returns an error: the system cannot suspend a process.
func suspend(*os.Process) error { return errors.ErrUnsupported }

func resume(*os.Process) error { return errors.ErrUnsupported }
