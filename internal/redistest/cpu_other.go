//go:build !unix

package redistest

import "time"

// processCPU returns 0: the CPU time is available on Unix only.
func processCPU() time.Duration { return 0 }
