package ui

import (
	"context"
	"sync"
	"time"

	"muster/internal/webui"
	"muster/jobs"
	"muster/orchestrator/health"
	"muster/proxies"
	"muster/sites"
	"muster/tasks/tasktype"
	taskui "muster/tasks/ui"
)

// known caches data for all pages that takes many Redis commands. It is safe for concurrent use.
type known struct {
	failures taskui.Failures
	history  taskui.History
	checks   recent[health.Report]
	stuck    recent[[]jobs.Stuck]
	queues   recent[[]tasktype.Queue]
	review   recent[reviewCount]
	sites    recent[[]sites.State]
	pool     webui.Cache[proxies.Stats]
}

// recent caches a value for some seconds.
type recent[T any] struct {
	mu    sync.Mutex // guards the fields below, and is held during a read
	until time.Time
	v     T
}

// get returns the cached value, if it is not older than keep, or reads it.
func (r *recent[T]) get(ctx context.Context, keep time.Duration, read func(context.Context) (T, error)) (T, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if time.Now().Before(r.until) {
		return r.v, nil
	}
	// A request that is cancelled must not fail the read for others.
	reading, cancel := context.WithTimeout(context.WithoutCancel(ctx), webui.AskTime)
	defer cancel()
	v, err := read(reading)
	if err == nil {
		r.v, r.until = v, time.Now().Add(keep)
	}
	return v, err
}

// inReview returns the number of items in review and of their jobs.
func (k *known) inReview(ctx context.Context, of *jobs.Service) (reviewCount, error) {
	return k.review.get(ctx, keepReviews, func(ctx context.Context) (reviewCount, error) {
		items, jobs, err := of.InReview(ctx)
		return reviewCount{items, jobs}, err
	})
}
