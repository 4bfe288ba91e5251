//go:build race

package api

// hugeSize is smaller with the race detector, which makes reading 10 MB slow.
const hugeSize = 2 << 20
