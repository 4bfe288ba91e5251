//go:build race

package extract

// hostileSize is how large hostile pages are: small here, as the race detector
// does not look at what they cost, and makes it ten times that.
const hostileSize = 32 << 10
