package sites

import (
	"context"
	"fmt"
	"time"
)

// placesName names the slots of Config.MaxPages among those of a KeyedLimiter.
const placesName = "sites:pages"

// How long a task waits for a place in line, and how long it leaves its worker
// to others when it has got none.
const (
	placePatience = 5 * time.Second
	placeAway     = 100 * time.Millisecond
)

// place waits for a place among the pages that may be on their way at once,
// and returns what gives it back; without one it returns later.
func (j *job) place(ctx context.Context) (leave func(), err error) {
	if j.places == nil {
		return func() {}, nil
	}
	slot, err := j.places.TryAcquireFor(ctx, placesName, placePatience)
	if err != nil {
		return nil, fmt.Errorf("wait for a place among the pages: %w", err)
	}
	if slot == nil {
		return nil, later{placeAway}
	}
	return func() {
		if err := slot.Release(ctx); err != nil {
			j.log.Warn("a place among the pages comes free only when it runs out", "error", err)
		}
	}, nil
}
