package sites

import "time"

// How long a task keeps its slot of a worker. Collect has longer, as it reads the
// results of its earlier runs again each time.
const (
	chunkSlice   = 300 * time.Millisecond
	collectSlice = time.Minute
)

// timeslice bounds how long a task runs before it releases its slot: the engine
// gives slots to workflows in turn, so that a job with many tasks leaves slots to
// those with few.
type timeslice struct {
	length time.Duration
	began  time.Time // zero: it has not begun
}

func (t *timeslice) begin() {
	if t.began.IsZero() {
		t.began = time.Now()
	}
}

func (t *timeslice) over() bool {
	return !t.began.IsZero() && time.Since(t.began) >= t.length
}
