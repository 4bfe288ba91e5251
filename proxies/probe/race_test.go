//go:build race

package probe_test

// crowd is how many are probed at once: fewer than a thousand here, as the
// race detector makes the work of each ten times that.
const crowd = 300
