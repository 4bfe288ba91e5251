package store

import (
	"context"
	"fmt"
	"time"
)

// How a limit of starts is kept.
const (
	rateMost  = 1000             // starts that are remembered; a limit of more is kept in parts of its span
	rateAhead = 30 * time.Second // minimum distance of the latest retry time
)

// Allow counts a start of task, of which there are at most n in any span of per. When there were as many
// already, it returns how long to wait before asking again.
func (s Starts) Allow(ctx context.Context, task string, n int, per time.Duration) (time.Duration, error) {
	if parts := (n + rateMost - 1) / rateMost; parts > 1 {
		n, per = n/parts, (per+time.Duration(parts)-1)/time.Duration(parts)
	}
	us, err := s.scripts["rate"].Run(ctx, s.rdb, []string{s.rateKey(task, "starts"), s.rateKey(task, "told")},
		n, max(1, per.Microseconds()), max(per, rateAhead).Microseconds()).Int64()
	if err != nil {
		return 0, fmt.Errorf("count starts of %s: %w", task, err)
	}
	return time.Duration(us) * time.Microsecond, nil
}
