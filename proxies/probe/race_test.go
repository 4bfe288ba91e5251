//go:build race

package probe_test

// crowd is the number of concurrent probes. It is lower because of the overhead of the race detector.
const crowd = 300
