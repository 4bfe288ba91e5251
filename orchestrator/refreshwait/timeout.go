package refreshwait

import (
	"math"
	"time"
)

// Timeout says how long a job may take, from how much there is to do.
type Timeout struct {
	Workers  int           // chunks at once. Defaults to 8; 0 and less count as 1 in For
	PerChunk time.Duration // the most one chunk takes. Defaults to 900 s
	Buffer   float64       // what is allowed on top. Defaults to 1.5
	Floor    time.Duration // the least that For returns once chunks are known. Defaults to 600 s
	Unknown  time.Duration // while the number of chunks is unknown, and without a move of a job that has Moves. Defaults to 1800 s
}

// DefaultTimeout is the timeout of a proxy refresh, whose chunks of 100 slow
// proxies were seen to take six minutes each.
var DefaultTimeout = Timeout{Workers: 8, PerChunk: 900 * time.Second, Buffer: 1.5, Floor: 600 * time.Second, Unknown: 1800 * time.Second}

// For returns the time for a number of chunks: rounds × PerChunk × Buffer,
// where a round is as many chunks as there are workers, and at least Floor.
// It saturates rather than overflow.
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
