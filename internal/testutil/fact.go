// Package testutil has what tests of several packages need: waiting for facts
// instead of time, work in the background, and reserved TCP ports.
package testutil

import (
	"testing"
	"time"
)

// limit ends a wait on a machine that runs the tests of all packages at once.
const limit = 2 * time.Minute

// Eventually waits until fact returns true. After two minutes it fails the test and
// prints what. Call it from the test's own goroutine.
func Eventually(tb testing.TB, what string, fact func() bool) {
	tb.Helper()
	if !Becomes(fact) {
		tb.Fatalf("not after %s: %s", limit, what)
	}
}

// Becomes waits until fact returns true and reports whether it did within two
// minutes. It is for code without a testing.TB, and for helpers that print what
// they saw.
//
// The pause between two calls of fact is some milliseconds, or three times
// the duration of a call if that is longer, so that polling does not slow down
// a busy machine.
func Becomes(fact func() bool) bool {
	pause := time.Millisecond
	for began := time.Now(); ; {
		asked := time.Now()
		if fact() {
			return true
		}
		if time.Since(began) > limit {
			return false
		}
		cost := time.Since(asked)
		time.Sleep(max(pause, min(3*cost, 300*time.Millisecond)))
		pause = min(2*pause, 8*time.Millisecond)
	}
}
