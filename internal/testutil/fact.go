// Package testutil has what tests of several packages need: waiting for facts
// instead of time, work in the background, and reserved TCP ports.
package testutil

import (
	"testing"
	"time"
)

// limit ends a wait on a machine that runs the tests of all packages at once.
const limit = 2 * time.Minute

// Eventually waits until fact holds. After two minutes it fails the test and
// prints what. Call it from the test's own goroutine.
func Eventually(tb testing.TB, what string, fact func() bool) {
	tb.Helper()
	if !Becomes(fact) {
		tb.Fatalf("not after %s: %s", limit, what)
	}
}

// Becomes waits until fact holds and reports whether it did within two
// minutes. It serves where there is no testing.TB, and helpers that print what
// they saw.
//
// The pause between two calls of fact is some milliseconds, and three times
// what a call takes if that is longer, so that a busy machine does its work
// instead of answering.
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
