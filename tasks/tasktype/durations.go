package tasktype

import (
	"math"
	"time"
)

// DurationBuckets is how many buckets durations are counted in.
const DurationBuckets = 49

// Durations counts durations in buckets, each with a bound that is the square root of 2 times that of the one before:
// 1 ms, 1.4 ms, 2 ms, … 4.7 h. The last one has all that are longer, too.
type Durations [DurationBuckets]int64

// DurationBucket returns the bucket of a duration.
func DurationBucket(d time.Duration) int {
	if d <= time.Millisecond {
		return 0
	}
	return min(int(math.Ceil(2*math.Log2(float64(d)/float64(time.Millisecond))-1e-9)), DurationBuckets-1)
}

// durationBound returns the upper bound of a bucket.
func durationBound(bucket int) time.Duration {
	return time.Duration(float64(time.Millisecond) * math.Pow(2, float64(bucket)/2))
}

// Add adds the counts of other.
func (d *Durations) Add(other Durations) {
	for i, n := range other {
		d[i] += n
	}
}

// Count returns how many durations there are.
func (d Durations) Count() (n int64) {
	for _, k := range d {
		n += k
	}
	return n
}

// Quantile returns the duration that a share q of all durations, from 0 to 1, does not exceed. Within a bucket it
// counts as if they were spread evenly. It returns 0 if there are none.
func (d Durations) Quantile(q float64) time.Duration {
	all := d.Count()
	if all == 0 {
		return 0
	}
	rank, before := min(max(q, 0), 1)*float64(all), int64(0)
	for i, n := range d {
		if n > 0 && float64(before+n) >= rank {
			var low time.Duration
			if i > 0 {
				low = durationBound(i - 1)
			}
			return low + time.Duration(float64(durationBound(i)-low)*(rank-float64(before))/float64(n))
		}
		before += n
	}
	return durationBound(DurationBuckets - 1)
}

// DurationPoint has how long the handlers of a task ran in an hour.
type DurationPoint struct {
	Time      time.Time // when the hour began
	Queue     string    // name
	Task      string    // at most 100 bytes of the name
	Durations Durations // of attempts that succeeded or failed
}

// FailedNode is a node that has failed.
type FailedNode struct {
	Workflow string    `json:"workflow"` // id
	Node     string    `json:"node"`     // id within the workflow
	Ended    time.Time `json:"ended"`
	Failure  Failure   `json:"failure"`
}
