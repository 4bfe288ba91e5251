//go:build !unix

package redistest

import "time"

// processCPU returns 0: only Unix has the CPU time of a process.
func processCPU() time.Duration { return 0 }
