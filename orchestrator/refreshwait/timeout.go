package refreshwait

import (
	"math"
	"time"
)

// Timeout computes the timeout of a job from its size.
type Timeout struct {
	Workers  int           // concurrent chunks; default 8; For uses at least 1
	PerChunk time.Duration // maximum duration of a chunk; default 900 s
	Buffer   float64       // safety factor; default 1.5
	Floor    time.Duration // minimum timeout for a known number of chunks; default 600 s
	Unknown  time.Duration // timeout while the number of chunks is unknown, and of a job with Marker without progress; default 1800 s
}

// DefaultTimeout is the timeout of a proxy refresh, whose chunks of 100 slow proxies have been measured at six minutes.
var DefaultTimeout = Timeout{Workers: 8, PerChunk: 900 * time.Second, Buffer: 1.5, Floor: 600 * time.Second, Unknown: 1800 * time.Second}

// For returns the timeout for a number of chunks: ⌈chunks / Workers⌉ × PerChunk × Buffer, at least Floor. It saturates on
// overflow.
func (t Timeout) For(chunks int) time.Duration {
	if chunks <= 0 {
		return t.Unknown
	}
	workers := max(t.Workers, 1)
	rounds := chunks / workers
	if chunks%workers > 0 {
		rounds++
	}
	d := float64(rounds) * float64(t.PerChunk) * t.Buffer
	if d >= math.MaxInt64 {
		return math.MaxInt64
	}
	return max(time.Duration(d), t.Floor)
}
