package workqueue_test

import (
	"testing"

	"github.com/redis/go-redis/v9"

	"muster/internal/testutil"
	"muster/tasks/redistest"
	"muster/tasks/workqueue"
)

// A process that does not know yet that a queue was deleted leaves nothing.
func TestLeaseOfADeletedQueueLeavesNothing(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, rdb redis.UniversalClient) {
		ctx := t.Context()
		q := workqueue.New(rdb, "deleted", workqueue.Config{})
		if _, err := q.Enqueue(ctx, workqueue.Item{ID: "a"}); err != nil {
			t.Fatal(err)
		}
		testutil.Ok(t, q.Delete(ctx))
		if leases, err := q.Lease(ctx, "w", 1); err != nil || len(leases) != 0 {
			t.Errorf("got %d leases, %v, want none", len(leases), err)
		}
		if n := rdb.Exists(ctx, "muster:wq:{deleted}:meta").Val(); n != 0 {
			t.Error("the queue has metadata")
		}
	})
}
