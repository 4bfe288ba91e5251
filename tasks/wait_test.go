package tasks_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"muster/tasks"
	"muster/tasks/redistest"
)

// A wait that times out returns the reason why the workflow has not ended.
func TestWaitThatTimesOutHasTheReason(t *testing.T) {
	t.Parallel()
	w := newWorld(t, redistest.New(t))
	run := sent(t, w, ID.S(1, tasks.Queue("nobody")))
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	_, err := run.Wait(ctx)
	_, valueErr := tasks.NodeValue[int](ctx, w.client, run.ID(), "0")
	for _, err := range []error{err, run.WaitAll(ctx), valueErr} {
		if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "node 0 (t.id) waits: no live worker takes from queue nobody") {
			t.Errorf("got %v, want what the node waits for", err)
		}
	}
}
