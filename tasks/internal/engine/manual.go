package engine

import (
	"context"
	"fmt"
	"time"

	"github.com/hibiken/asynq"
)

// Tend does what is due in the agenda of a Manual worker, and writes the progress keys that wait for
// it. It returns how much was due, and when the earliest of what is left will be; zero for nothing.
func (w *Worker) Tend(ctx context.Context) (did int, next time.Time, err error) {
	w.projectAll(ctx)
	shards, err := w.e.store.Sweep(ctx, claimFor, sweepMost)
	if err != nil {
		return 0, next, err
	}
	for i := range shards {
		sw := &shards[i]
		for _, en := range sw.Due {
			if err := w.e.attend(ctx, en); err != nil {
				return did, next, fmt.Errorf("workflow %s node %s: %w", en.Flow.ID, en.Node, err)
			}
		}
		did += len(sw.Due)
		if !sw.Next.IsZero() && (next.IsZero() || sw.Next.Before(next)) {
			next = sw.Next
		}
	}
	return did, next, nil
}

// Wake lets the worker look into its queues. Who moves Redis's clock may have silenced its bell.
func (w *Worker) Wake() { ring(w.seam.wake) }

// Backlog returns the queues that work was sent to, with how much is in each or was taken from it.
func (e *Engine) Backlog(ctx context.Context) (map[string]int64, error) {
	queues, err := asynq.NewInspectorFromRedisClient(e.store.Redis()).Queues()
	if err != nil {
		return nil, fmt.Errorf("list queues: %w", err)
	}
	out := make(map[string]int64, len(queues))
	for _, q := range queues {
		if out[q], err = e.store.Backlog(ctx, q); err != nil {
			return nil, err
		}
	}
	return out, nil
}
