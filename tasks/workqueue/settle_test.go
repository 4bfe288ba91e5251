package workqueue_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"muster/tasks/workqueue"
)

func TestSettleDoneClearsTheLease(t *testing.T) {
	t.Parallel()
	every(t, workqueue.Config{}, func(k *kit) {
		k.enqueue("a")
		k.settle(k.leaseOne("w"), workqueue.Done())
		got := k.get("a")
		if got.State != workqueue.StateDone || got.Worker != "" || !got.Expires.IsZero() || got.Note != "" {
			k.t.Fatalf("got %+v, want done without worker, lease and note", got)
		}
		k.wantStats("0 0 1 0 0")
	})
}

func TestReasonsAndErrorsAreStored(t *testing.T) {
	t.Parallel()
	every(t, workqueue.Config{}, func(k *kit) {
		k.enqueue("a", "b")
		k.settle(k.leaseOne("w"), workqueue.Skipped("robots.txt"))
		k.settle(k.leaseOne("w"), workqueue.Failed(errors.New("gone")))
		if a, b := k.get("a"), k.get("b"); a.State != workqueue.StateSkipped || a.Note != "robots.txt" ||
			b.State != workqueue.StateError || b.Note != "gone" {
			k.t.Fatalf("got %+v and %+v, want skipped and error with their notes", a, b)
		}
		k.wantStats("0 0 0 1 1")
	})
}

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

func TestUnknownItemIsNoFailure(t *testing.T) {
	t.Parallel()
	every(t, workqueue.Config{}, func(k *kit) {
		l := workqueue.Leased{Item: workqueue.Item{ID: "unknown"}, Token: 1}
		k.settle(l, workqueue.Done())
		if s := k.retry(l, 0); s != "" {
			k.t.Fatalf("got state %q, want none", s)
		}
		k.wantStats("0 0 0 0 0")
	})
}

func TestLostLeaseChangesNothing(t *testing.T) {
	t.Parallel()
	every(t, workqueue.Config{}, func(k *kit) {
		k.enqueue("a")
		old := k.leaseOne("w1")
		if n, err := k.ExpireWorker(k.t.Context(), "w1"); n != 1 || err != nil {
			k.t.Fatalf("got %d expired, %v; want 1", n, err)
		}
		now := k.leaseOne("w2")
		err := k.Settle(k.t.Context(), old, workqueue.Done().With(nil, []byte("out")))
		if !errors.Is(err, workqueue.ErrLeaseLost) {
			k.t.Fatalf("got %v, want ErrLeaseLost", err)
		}
		if _, err := k.Retry(k.t.Context(), old, nil, 0, true); !errors.Is(err, workqueue.ErrLeaseLost) {
			k.t.Fatalf("got %v, want ErrLeaseLost", err)
		}
		if lost, _ := k.Heartbeat(k.t.Context(), old, now); len(lost) != 1 || lost[0].Token != old.Token {
			k.t.Fatalf("got lost %v, want the old lease", lost)
		}
		if err := k.Return(k.t.Context(), old); err != nil {
			k.t.Fatal(err)
		}
		if got := k.get("a"); got.Worker != "w2" || got.State != workqueue.StateInProgress {
			k.t.Fatalf("got %+v, want in progress with w2", got)
		}
		if n, _ := k.Outputs().Len(k.t.Context()); n != 0 {
			k.t.Fatalf("got %d outputs of a lost lease, want none", n)
		}
		k.wantStats("0 1 0 0 0")
	})
}

func TestTerminalItemDoesNotChange(t *testing.T) {
	t.Parallel()
	every(t, workqueue.Config{}, func(k *kit) {
		k.enqueue("a")
		l := k.leaseOne("w")
		k.settle(l, workqueue.Done())
		if err := k.Settle(k.t.Context(), l, workqueue.Skipped("late")); !errors.Is(err, workqueue.ErrLeaseLost) {
			k.t.Fatalf("got %v, want ErrLeaseLost", err)
		}
		if _, err := k.Retry(k.t.Context(), l, nil, 0, true); !errors.Is(err, workqueue.ErrLeaseLost) {
			k.t.Fatalf("got %v, want ErrLeaseLost", err)
		}
		_ = k.Return(k.t.Context(), l)
		k.wantStats("0 0 1 0 0")
	})
}

func TestCallsCanBeRepeated(t *testing.T) {
	t.Parallel()
	every(t, workqueue.Config{}, func(k *kit) {
		k.enqueue("a", "b", "c")
		a, b, c := k.leaseOne("w"), k.leaseOne("w"), k.leaseOne("w")
		for range 2 {
			k.settle(a, workqueue.Done().With([]byte("r"), []byte("1"), []byte("2")))
			if s := k.retry(b, time.Hour); s != workqueue.StateQueued {
				k.t.Fatalf("got state %s, want queued", s)
			}
			if err := k.Return(k.t.Context(), c); err != nil {
				k.t.Fatal(err)
			}
		}
		k.wantStats("2 0 1 0 0")
		if n, _ := k.Outputs().Len(k.t.Context()); n != 2 {
			k.t.Fatalf("got %d outputs, want 2", n)
		}
		if b := k.get("b"); b.Attempts != 1 {
			k.t.Fatalf("%d attempts, want 1", b.Attempts)
		}
	})
}

func TestFailedRunsEndInError(t *testing.T) {
	t.Parallel()
	every(t, workqueue.Config{MaxAttempts: 2}, func(k *kit) {
		k.enqueue("a")
		if s := k.retry(k.leaseOne("w"), 0); s != workqueue.StateQueued || k.get("a").Attempts != 1 {
			k.t.Fatalf("after one: got %s, %+v; want queued with one attempt", s, k.get("a"))
		}
		if s := k.retry(k.leaseOne("w"), 0); s != workqueue.StateError {
			k.t.Fatalf("after two: got %s, want error", s)
		}
		if got := k.get("a"); got.Attempts != 2 || got.Note != "no luck" {
			k.t.Fatalf("got %+v, want the error of its last run", got)
		}
		k.wantStats("0 0 0 0 1")
	})
}

func TestItemHasItsOwnLimitOfAttempts(t *testing.T) {
	t.Parallel()
	every(t, workqueue.Config{MaxAttempts: 2}, func(k *kit) {
		_, _ = k.Enqueue(k.t.Context(), workqueue.Item{ID: "a", MaxAttempts: 1})
		if s := k.retry(k.leaseOne("w"), 0); s != workqueue.StateError {
			k.t.Fatalf("got %s, want error", s)
		}
	})
}

func TestRetryWithoutAttemptDoesNotCount(t *testing.T) {
	t.Parallel()
	every(t, workqueue.Config{MaxAttempts: 1}, func(k *kit) {
		k.enqueue("a")
		s, err := k.Retry(k.t.Context(), k.leaseOne("w"), errors.New("busy"), 0, false)
		if err != nil || s != workqueue.StateQueued || k.get("a").Attempts != 0 {
			k.t.Fatalf("got %s, %v, %+v; want queued with no attempts", s, err, k.get("a"))
		}
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

func TestPoisonItemEndsInError(t *testing.T) {
	t.Parallel()
	every(t, workqueue.Config{MaxAttempts: 3}, func(k *kit) {
		k.enqueue("a")
		for i := range 3 {
			if l := k.leaseOne("w"); l.Attempts != i {
				k.t.Fatalf("attempts %d, want %d", l.Attempts, i)
			}
			if _, err := k.ExpireWorker(k.t.Context(), "w"); err != nil {
				k.t.Fatal(err)
			}
		}
		if got := k.get("a"); got.State != workqueue.StateError || !strings.Contains(got.Note, "lease expired") {
			k.t.Fatalf("got %+v, want the error of its last run", got)
		}
		k.wantStats("0 0 0 0 1")
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
