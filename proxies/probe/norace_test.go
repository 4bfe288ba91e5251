//go:build !race

package probe_test

// crowd is the number of concurrent probes.
const crowd = 1000
