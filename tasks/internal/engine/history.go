package engine

import (
	"context"

	"muster/tasks/tasktype"
)

// history stores the depths of queues every minute. One of the workers stores those of a minute.
type history struct {
	*local
	inspector *Inspector
	minute    int64 // last minute that this worker has tried to claim, in unix minutes
}

// once stores the current values, unless another worker stores those of the minute.
func (h *history) once(ctx context.Context) error {
	now := h.clock.Now()
	minute := now.Unix() / 60
	if minute == h.minute {
		return nil
	}
	h.minute = minute
	if first, err := h.store.History.Claim(ctx, h.cfg.Name, now); err != nil || !first {
		return err
	}
	queues, err := h.inspector.Queues(ctx)
	if err != nil {
		return err
	}
	pending, active := map[string]int64{}, map[string]int64{}
	for _, q := range queues {
		pending[q.Name], active[q.Name] = q.Pending, q.Active
	}
	return h.store.History.Add(ctx, now, map[tasktype.Measure]map[string]int64{tasktype.PendingTasks: pending, tasktype.ActiveTasks: active})
}
