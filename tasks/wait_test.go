package tasks_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

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

// A wait that times out returns the error of its context, not the error of the connection.
func TestWaitEndsWithItsContext(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, rdb redis.UniversalClient) {
		w := newWorld(t, rdb)
		t.Cleanup(func() { w.open("for ever") })
		for range 3 {
			run := sent(t, w, Hold.S("for ever"))
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
			for range 2 { // within its time, and after it
				if _, err := run.Wait(ctx); !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("got %v", err)
				}
			}
			cancel()
			over, cancel := context.WithDeadline(t.Context(), time.Now().Add(-time.Second))
			if _, err := sent(t, w, Hold.S("for ever")).Wait(over); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("got %v", err)
			}
			cancel()
		}
	})
}
