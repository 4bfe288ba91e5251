//go:build !race

package extract

// hostileSize is how large hostile pages are: so large that a way that takes
// time in the square of it takes minutes.
const hostileSize = 256 << 10
