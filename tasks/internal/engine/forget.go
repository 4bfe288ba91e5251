package engine

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/hibiken/asynq"
)

// Queues that are not used any more are forgotten: their names may have been made for one run of a program.
const (
	unusedFor   = 24 * time.Hour
	forgetBeats = 1800 // beats of a worker between two looks for such queues: an hour
)

// forgetQueues deletes the keys of the queues that no live worker serves, that are not paused, that have no tasks, and
// from which no task was taken for a time. A task that is sent to such a queue later makes them again.
func (f *Fleet) forgetQueues(ctx context.Context, unused time.Duration) error {
	names, err := f.queues(ctx)
	if err != nil {
		return err
	}
	live, err := f.Workers(ctx)
	if err != nil {
		return err
	}
	served := map[string]bool{}
	for i := range live {
		for q := range live[i].Queues {
			served[q] = true
		}
	}
	in := asynq.NewInspectorFromRedisClient(f.store.Redis())
	for _, q := range names {
		if served[q] || strings.Contains(q, ":") { // it may be of another namespace
			continue
		}
		used, err := f.store.Queues.UsedByAsynq(ctx, q, f.clock.Now(), unused)
		if err != nil {
			return err
		}
		if used {
			continue
		}
		gone, err := f.store.Queues.Forget(ctx, q, unused)
		if err != nil {
			return err
		}
		if !gone {
			continue
		}
		if err := in.DeleteQueue(f.store.AsynqQueue(q), false); errors.Is(err, asynq.ErrQueueNotEmpty) {
			continue
		} else if err != nil && !errors.Is(err, asynq.ErrQueueNotFound) {
			return err
		}
		if err := f.store.Queues.DropTotals(ctx, q); err != nil {
			return err
		}
		f.log.InfoContext(ctx, "unused queue was forgotten", "queue", q)
	}
	return nil
}
