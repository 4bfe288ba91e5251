package workqueue_test

import (
	"errors"
	"slices"
	"testing"

	"github.com/redis/go-redis/v9"

	"muster/tasks/redistest"
	"muster/tasks/workqueue"
)

func TestForgetRemovesOnlyItemsThatHaveEnded(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, rdb redis.UniversalClient) {
		ctx := t.Context()
		q := workqueue.New(rdb, "forget", workqueue.Config{CountLanes: true, MaxAttempts: 1})
		items := []workqueue.Item{{ID: "done"}, {ID: "failed"}, {ID: "leased"}, {ID: "queued"}}
		for i := range items {
			items[i].ResourceKeys = []string{"lane"}
		}
		if _, err := q.Enqueue(ctx, items...); err != nil {
			t.Fatal(err)
		}
		leases, err := q.Lease(ctx, "w", 3)
		if err != nil || len(leases) != 3 {
			t.Fatalf("got %d leases, %v, want 3", len(leases), err)
		}
		if err := q.Settle(ctx, leases[0], workqueue.Done().With([]byte("result"))); err != nil {
			t.Fatal(err)
		}
		if _, err := q.Retry(ctx, leases[1], errors.New("no"), 0, true); err != nil {
			t.Fatal(err)
		}
		for range 2 { // again is the same
			gone, err := q.Forget(ctx, "done", "failed", "leased", "queued", "unknown")
			if want := []string{"done", "failed", "unknown"}; err != nil || !slices.Equal(gone, want) {
				t.Errorf("got %v, %v, want %v", gone, err, want)
			}
		}
		left, err := q.Get(ctx, "done", "failed", "leased", "queued")
		if err != nil || len(left) != 2 || left[0].ID != "leased" || left[1].ID != "queued" {
			t.Errorf("got %+v, %v, want leased and queued", left, err)
		}
		s, err := q.Stats(ctx)
		if err != nil || s.Total != 2 || s.Done != 0 || s.Error != 0 {
			t.Errorf("got %+v, %v, want the counts of two items", s, err)
		}
		lanes, err := q.LaneStats(ctx)
		if want := (workqueue.Counts{Queued: 1, InProgress: 1}); err != nil || lanes["lane"] != want {
			t.Errorf("got lanes %+v, %v, want %+v", lanes, err, want)
		}
		if report, err := q.Verify(ctx); err != nil {
			t.Errorf("got %+v, %v, want a queue that is consistent", report, err)
		}
		// A lease of an item that was forgotten changes nothing, and the item can be added again.
		if n, err := q.Enqueue(ctx, items[0]); err != nil || n != 1 {
			t.Errorf("added again: got %d, %v, want 1", n, err)
		}
	})
}

// A process that does not know yet that a queue was deleted leaves nothing.
func TestLeaseOfADeletedQueueLeavesNothing(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, rdb redis.UniversalClient) {
		ctx := t.Context()
		q := workqueue.New(rdb, "deleted", workqueue.Config{})
		if _, err := q.Enqueue(ctx, workqueue.Item{ID: "a"}); err != nil {
			t.Fatal(err)
		}
		if err := q.Delete(ctx); err != nil {
			t.Fatal(err)
		}
		if leases, err := q.Lease(ctx, "w", 1); err != nil || len(leases) != 0 {
			t.Errorf("got %d leases, %v, want none", len(leases), err)
		}
		if n := rdb.Exists(ctx, "muster:wq:{deleted}:meta").Val(); n != 0 {
			t.Error("the queue has metadata")
		}
	})
}
