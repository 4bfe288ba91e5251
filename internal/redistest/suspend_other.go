//go:build !unix

package redistest

import (
	"errors"
	"os"
)

// suspend returns an error: processes cannot be suspended on this system.
func suspend(*os.Process) error { return errors.ErrUnsupported }

func resume(*os.Process) error { return errors.ErrUnsupported }
