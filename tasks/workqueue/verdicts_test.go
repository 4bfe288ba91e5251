package workqueue_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"muster/tasks/redistest"
	"muster/tasks/workqueue"
)

// The verdict of a handler decides when its item runs again, and whether the attempt counts.
func TestVerdictsOfHandlers(t *testing.T) {
	t.Parallel()
	busy := errors.New("the host is busy")
	const hold = 300 * time.Millisecond
	for name, c := range map[string]struct {
		verdict  error
		attempts int
		waits    time.Duration // at least, before the item runs again
	}{
		"Postpone":             {workqueue.Postpone(hold, busy), 0, hold},
		"NotNow":               {workqueue.NotNow("host", hold, busy), 0, hold},
		"RetryAfter":           {workqueue.RetryAfter(hold, busy), 1, hold},
		"HoldBack":             {workqueue.HoldBack("host", hold, busy), 1, hold},
		"HoldBack of Postpone": {workqueue.HoldBack("host", hold, workqueue.Postpone(0, busy)), 0, hold},
		"an error":             {busy, 1, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if !errors.Is(c.verdict, busy) {
				t.Errorf("%v hides its cause", c.verdict)
			}
			if got, want := workqueue.IsNotNow(fmt.Errorf("fetch: %w", c.verdict)), name == "NotNow"; got != want {
				t.Errorf("IsNotNow: got %v, want %v", got, want)
			}
			k := newKit(t, redistest.New(t), workqueue.Config{Backoff: quick, MaxAttempts: 5})
			if _, err := k.Enqueue(t.Context(), workqueue.Item{ID: "a", Kind: "test", ResourceKeys: []string{"host"}}); err != nil {
				t.Fatal(err)
			}
			var first time.Time
			var attempts, waited atomic.Int64
			k.run(k.pool(workqueue.PoolConfig{Workers: 1, Drain: true, Logger: quiet}, func(_ context.Context, it workqueue.Leased) (workqueue.Outcome, error) {
				if first.IsZero() { // there is one worker
					first = time.Now()
					return workqueue.Outcome{}, c.verdict
				}
				attempts.Store(int64(it.Attempts))
				waited.Store(int64(time.Since(first)))
				return workqueue.Done(), nil
			}))
			k.wantStats("0 0 1 0 0")
			if int(attempts.Load()) != c.attempts {
				t.Errorf("got %d attempts, want %d", attempts.Load(), c.attempts)
			}
			if got := time.Duration(waited.Load()); got < c.waits {
				t.Errorf("it ran again after %v, want %v or more", got, c.waits)
			}
		})
	}
}

// Items that are settled together have separate results: a lost lease does not affect the others.
func TestSettleAllAnswersForEach(t *testing.T) {
	t.Parallel()
	every(t, workqueue.Config{}, func(k *kit) {
		k.enqueue("a", "b", "c")
		l := k.lease("w", 3)
		k.settle(l[1], workqueue.Done())
		errs := k.SettleAll(k.t.Context(), workqueue.Settlement{Lease: l[0], Outcome: workqueue.Done()},
			workqueue.Settlement{Lease: l[1], Outcome: workqueue.Failed(errors.New("late"))},
			workqueue.Settlement{Lease: l[2], Outcome: workqueue.Skipped("robots.txt")})
		if len(errs) != 3 || errs[0] != nil || !errors.Is(errs[1], workqueue.ErrLeaseLost) || errs[2] != nil {
			k.t.Errorf("got %v, want that only the lease of the second is lost", errs)
		}
		k.wantStats("0 0 2 1 0")
	})
}
