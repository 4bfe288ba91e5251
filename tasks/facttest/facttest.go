// Package facttest lets tests wait for facts, never for time.
package facttest

import (
	"testing"
	"time"
)

// limit ends a wait for what will not come, on a machine that runs every
// package's tests at once.
const limit = 2 * time.Minute

// Eventually returns as soon as fact holds, and fails the test, naming what,
// when it still does not after two minutes. Call it from the test's own goroutine.
func Eventually(tb testing.TB, what string, fact func() bool) {
	tb.Helper()
	if !Comes(fact) {
		tb.Fatalf("not after %s: %s", limit, what)
	}
}

// Comes returns true as soon as fact holds, and false when it still does not
// after two minutes. It is for where there is no testing.TB, and for helpers that
// say themselves what they have seen instead.
//
// It looks every few milliseconds, and less often where a look takes long: a
// busy machine is to bring the fact about, not to look for it.
func Comes(fact func() bool) bool {
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
