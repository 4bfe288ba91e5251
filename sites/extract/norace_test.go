//go:build !race

package extract

// hostileSize is the size of hostile pages: so large that quadratic time would be minutes.
const hostileSize = 256 << 10
