//go:build !race

package probe_test

// crowd is how many are probed at once.
const crowd = 1000
