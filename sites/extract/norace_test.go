//go:build !race

package extract

// hostileSize is the size of hostile pages. Quadratic time would take minutes.
const hostileSize = 256 << 10
