package engine

import (
	"context"
	"sync"

	"muster/tasks/internal/store"
	"muster/tasks/tasktype"
)

// tally counts the attempts of a worker by task until it stores the counts.
type tally struct {
	*local
	due chan struct{} // gets a value when there is something to store

	mu     sync.Mutex // guards counts
	counts map[store.Counted]*store.Count
}

// add counts stored results.
func (t *tally) add(done []result) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for i := range done {
		r := &done[i]
		if r.kind == "" || r.g == nil || r.kind == store.ChangePlan || r.kind == store.ChangeOpen || r.kind == store.ChangeAgain && r.state != store.AgainRetry {
			continue
		}
		queue := counted(r.g, r.id)
		if queue == "" {
			continue
		}
		key := store.Counted{Queue: queue, Task: r.g.Specs[r.g.Nodes[r.id.Index].Spec].Task}
		c := t.counts[key]
		if c == nil {
			c = &store.Count{}
			t.counts[key] = c
			signal(t.due)
		}
		c.Add(r.kind, r.took, !r.began.IsZero())
	}
}

// once stores the counts. Counts are dropped on an error: a second call could count them twice.
func (t *tally) once(ctx context.Context) {
	t.mu.Lock()
	counts := t.counts
	t.counts = map[store.Counted]*store.Count{}
	t.mu.Unlock()
	if len(counts) == 0 {
		return
	}
	if err := t.store.Counts.Add(ctx, counts); err != nil {
		t.log.WarnContext(ctx, "counts of tasks were not stored", "tasks", len(counts), "error", err)
	}
}

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
