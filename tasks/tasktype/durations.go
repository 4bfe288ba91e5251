package tasktype

import (
	"encoding/json"
	"math"
	"time"
)

// DurationBuckets is the number of buckets of a Durations.
const DurationBuckets = 49

// Durations is a histogram of durations. The bounds of the buckets grow by the square root of 2: 1 ms, 1.4 ms, 2 ms,
// … 4.7 h. The last bucket includes all longer durations.
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

// Count returns the number of durations.
func (d Durations) Count() (n int64) {
	for _, k := range d {
		n += k
	}
	return n
}

// Quantile returns the q-quantile of the durations, for q from 0 to 1, by linear interpolation within a bucket. It
// returns 0 without durations.
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

// A DurationPoint is the histogram of a task for one hour.
type DurationPoint struct {
	Time      time.Time // start of the hour
	Queue     string    // name
	Task      string    // the first 100 bytes of the name
	Durations Durations // of succeeded and failed attempts
}

// FailedNode is a failed node.
type FailedNode struct {
	Workflow string    `json:"workflow"` // id
	Node     string    `json:"node"`     // id within the workflow
	Ended    time.Time `json:"ended"`
	Failure  Failure   `json:"failure"`
}

// LogLine is a log line of a task.
type LogLine struct {
	Time    time.Time `json:"time"`
	Level   string    `json:"level"` // as of log/slog, such as INFO
	Node    string    `json:"node"`
	Task    string    `json:"task"`
	Attempt int       `json:"attempt"`
	Text    string    `json:"text"` // message and attributes, at most 1,000 bytes
}

// Chunk is a part of the output of a task; see tasks.Emit.
type Chunk struct {
	Node    string          `json:"node"`
	Attempt int             `json:"attempt"`
	Begin   bool            `json:"begin"`          // first chunk of a run of the handler: a reader may discard the earlier chunks of the node
	Lost    int             `json:"lost,omitempty"` // chunks before this one that were deleted before they were read, because of the limits
	Time    time.Time       `json:"time"`
	Value   json.RawMessage `json:"value"`
}

// Text returns the value of a chunk that is a JSON string, and otherwise its JSON.
func (c Chunk) Text() string {
	var s string
	if json.Unmarshal(c.Value, &s) != nil {
		return string(c.Value)
	}
	return s
}
