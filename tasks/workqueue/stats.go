package workqueue

import "context"

// Stats counts the items of a queue by state. Delayed ones are among the
// queued.
type Stats struct {
	Queued     int64 `json:"queued"`
	InProgress int64 `json:"in_progress"`
	Done       int64 `json:"done"`
	Skipped    int64 `json:"skipped"`
	Error      int64 `json:"error"`
	Total      int64 `json:"total"`
	Delayed    int64 `json:"delayed"`
	Outputs    int64 `json:"outputs"` // in the output stream, not yet acknowledged
	Paused     bool  `json:"paused"`

	Expired int64   `json:"expired"`      // leases that expired, since the queue was made
	Waiting float64 `json:"next_waiting"` // seconds that the next item has been ready
}

// Open is how many items are not terminal.
func (s Stats) Open() int64 { return s.Queued + s.InProgress }

// Stats reads the counters, all at one moment.
func (q *Queue) Stats(ctx context.Context) (Stats, error) {
	s, _, err := readStats(ctx, &q.store)
	return s, err
}

// cards are the sizes of the sets beside the counters, and how often the queue
// has changed.
type cards struct{ ready, leased, failed, moves int64 }

func readStats(ctx context.Context, s *store) (Stats, cards, error) {
	n, err := s.ints(ctx, "read statistics", "stats")
	if err != nil {
		return Stats{}, cards{}, err
	}
	return Stats{
		Queued: n[0], InProgress: n[1], Done: n[2], Skipped: n[3], Error: n[4],
		Total:   n[0] + n[1] + n[2] + n[3] + n[4],
		Delayed: n[5], Outputs: n[9], Paused: n[11] == 1,
		Expired: n[12], Waiting: float64(n[13]) / 1000,
	}, cards{ready: n[6], leased: n[7], failed: n[8], moves: n[10]}, nil
}
