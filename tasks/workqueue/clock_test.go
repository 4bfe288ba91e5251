package workqueue_test

import (
	"testing"
	"time"

	"muster/internal/redistest"
	"muster/tasks/workqueue"
)

// NotBefore does not depend on the difference between the clocks of Redis and of this machine.
func TestItemsWaitWhateverTheClocks(t *testing.T) {
	t.Parallel()
	for _, ahead := range []time.Duration{-10 * time.Minute, -time.Second, time.Second, 10 * time.Minute} {
		rdb, jump := redistest.Clock(t)
		jump(ahead)
		k := newKit(t, rdb, workqueue.Config{})
		if _, err := k.Enqueue(t.Context(), workqueue.Item{ID: "a", NotBefore: time.Now().Add(time.Hour)}); err != nil {
			t.Fatal(err)
		}
		for _, wait := range []time.Duration{time.Hour, time.Minute} {
			got, err := k.LeaseWithin(t.Context(), "w", 1, workqueue.Budget{Default: -1})
			if err != nil || len(got.Items) > 0 || got.Next > wait || got.Next < wait/2 {
				t.Errorf("Redis ahead by %v: got %+v, %v, want none for %v", ahead, got, err, wait)
			}
			jump(time.Hour - time.Minute)
		}
		if got, err := k.Lease(t.Context(), "w", 1); err != nil || len(got) != 1 {
			t.Errorf("Redis ahead by %v: got %v, %v, want the item", ahead, got, err)
		}
	}
}

// After the clock of Redis was set back, delayed items and leases of dead workers wait no longer than when they began.
func TestClockOfRedisIsSetBack(t *testing.T) {
	t.Parallel()
	rdb, jump := redistest.Clock(t)
	k := newKit(t, rdb, workqueue.Config{LeaseTTL: 10 * time.Minute})
	k.enqueue("retried", "held")
	k.leaseOne("dead")
	k.retry(k.leaseOne("w"), time.Minute)
	lease := func(wait time.Duration, want int) {
		t.Helper()
		got, err := k.LeaseWithin(t.Context(), "w", 1, workqueue.Budget{Default: -1})
		if err != nil || len(got.Items) != want || got.Next > wait {
			t.Errorf("got %+v, %v, want %d items and the next within %v", got, err, want, wait)
		}
	}
	lease(time.Minute, 0)
	jump(-time.Hour)
	lease(time.Minute, 0)
	jump(time.Minute)
	lease(9*time.Minute+time.Second, 1)
	jump(9*time.Minute + time.Second)
	lease(10*time.Minute, 1)
}
