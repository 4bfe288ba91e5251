//go:build !race

package api

// hugeSize is larger than every body that is read, but those with items.
const hugeSize = 10 << 20
