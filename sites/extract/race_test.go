//go:build race

package extract

// hostileSize is the size of hostile pages. It is small because the race detector takes ten times as long.
const hostileSize = 32 << 10
