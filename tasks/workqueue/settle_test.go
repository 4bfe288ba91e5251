package workqueue_test

import (
	"testing"
	"time"

	"muster/tasks/workqueue"
)

func TestSettleTakesNoOtherOutcome(t *testing.T) {
	t.Parallel()
	every(t, workqueue.Config{}, func(k *kit) {
		k.enqueue("a")
		l := k.leaseOne("w")
		for _, s := range []workqueue.State{"bogus", "", workqueue.StateQueued} {
			if err := k.Settle(k.t.Context(), l, workqueue.Outcome{State: s}); err == nil {
				k.t.Errorf("state %q: got nil, want an error", s)
			}
		}
		k.wantStats("0 1 0 0 0")
	})
}

func TestBackoffDelaysAnItem(t *testing.T) {
	t.Parallel()
	every(t, workqueue.Config{}, func(k *kit) {
		k.enqueue("a")
		const delay = 300 * time.Millisecond
		lease := k.leaseOne("w")
		began := time.Now()
		k.retry(lease, delay)
		s, _ := k.Stats(k.t.Context())
		available := k.get("a").Available
		got := k.lease("w", 1)
		if time.Since(began) < delay && (len(got) != 0 || s.Delayed != 1 || available.IsZero()) {
			k.t.Fatalf("leased %v, %+v; want none, one delayed", got, s)
		}
		k.eventually("the delay to pass", func() bool { return len(got) == 1 || len(k.lease("w", 1)) == 1 })
		if got := k.get("a"); !got.Available.IsZero() {
			k.t.Fatalf("got available %v, want none", got.Available)
		}
	})
}

func TestExpiredLeasesEndInError(t *testing.T) {
	t.Parallel()
	every(t, workqueue.Config{MaxAttempts: 1, LeaseTTL: 30 * time.Millisecond}, func(k *kit) {
		k.enqueue("a")
		k.leaseOne("w")
		k.eventually("the poison item to end", func() bool {
			return len(k.lease("w", 1)) == 0 && k.get("a").State == workqueue.StateError
		})
		k.wantStats("0 0 0 0 1")
	})
}
