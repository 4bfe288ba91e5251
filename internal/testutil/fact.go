// Package testutil contains test helpers for several packages: polling for conditions, background functions, and reserved TCP ports.
package testutil

import (
	"testing"
	"time"
)

// limit is the timeout of a wait. It is long, because the machine may run the tests of all packages in parallel.
const limit = 2 * time.Minute

// Eventually waits until fact returns true. After two minutes it fails the test and prints description. It must be called from the
// goroutine of the test.
func Eventually(tb testing.TB, description string, fact func() bool) {
	tb.Helper()
	if !Becomes(fact) {
		tb.Fatalf("not after %s: %s", limit, description)
	}
}

// Becomes waits until fact returns true, and reports whether it did within two minutes. It is for code without a testing.TB, and for
// helpers that print their own messages.
//
// The pause between calls of fact is some milliseconds, or three times the duration of a call if that is longer, so that polling does
// not slow down a busy machine.
func Becomes(fact func() bool) bool {
	pause := time.Millisecond
	for start := time.Now(); ; {
		call := time.Now()
		if fact() {
			return true
		}
		if time.Since(start) > limit {
			return false
		}
		cost := time.Since(call)
		time.Sleep(max(pause, min(3*cost, 300*time.Millisecond)))
		pause = min(2*pause, 8*time.Millisecond)
	}
}
