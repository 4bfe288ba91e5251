// Package facttest lets tests wait for facts, never for time.
package facttest

import (
	"testing"
	"time"
)

// limit ends a wait for what will not come, on a machine that runs every
// package's tests at once.
const limit = time.Minute

// Eventually returns as soon as fact holds, and fails the test, naming what,
// when it still does not after a minute. Call it from the test's own goroutine.
func Eventually(tb testing.TB, what string, fact func() bool) {
	tb.Helper()
	if !Comes(fact) {
		tb.Fatalf("not after %s: %s", limit, what)
	}
}

// Comes returns true as soon as fact holds, and false when it still does not
// after 30 s. It is for where there is no testing.TB, and for helpers that say
// themselves what they have seen instead.
func Comes(fact func() bool) bool {
	deadline := time.NewTimer(limit)
	defer deadline.Stop()
	look := time.NewTicker(3 * time.Millisecond)
	defer look.Stop()
	for !fact() {
		select {
		case <-look.C:
		case <-deadline.C:
			return false
		}
	}
	return true
}
