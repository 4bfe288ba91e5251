package agent_test

import (
	"context"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"muster/internal/redistest"
	"muster/internal/testutil"
	"muster/jobs"
	"muster/jobs/agent"
)

// Two processes give no more work of a role at a time than its limit, and the end of one assignment lets the next begin.
func TestConcurrencyOfARole(t *testing.T) {
	t.Parallel()
	redistest.Both(t, func(t *testing.T, rdb redis.UniversalClient) {
		limited := func(c *setup) {
			c.Tick, c.Limits = time.Hour, agent.Limits{Concurrency: map[string]int{"validator": 2}}
		}
		r := newRig(t, rdb, limited)
		other := newRigOn(t, rdb, r.items, limited)
		one, two := r.register("one", 10, "validator", "creator"), other.register("two", 10, "validator")
		r.put("validator", 4)
		first := r.leaseOne(one)
		if got := other.lease(two, 10); len(got) != 1 {
			t.Errorf("the other process: got %d assignments, want 1", len(got))
		}
		if got, err := other.Lease(t.Context(), two, nil, 10, 0); err != nil || len(got) != 0 {
			t.Errorf("over the limit: got %d assignments, %v, want none", len(got), err)
		}
		r.put("creator", 1)
		if got := r.lease(one, 10); len(got) != 1 || got[0].Role != "creator" {
			t.Errorf("another role: got %d assignments, want 1", len(got))
		}
		testutil.Must(r.Beat(t.Context(), first.ID, one, first.Fence, nil))(t)
		next := make(chan int, 1)
		go func() {
			got, _ := other.Lease(t.Context(), two, nil, 10, 30*time.Second)
			next <- len(got)
		}()
		testutil.Eventually(t, "the poll waits", func() bool { return other.Waiting() == 1 })
		testutil.Ok(t, r.Complete(t.Context(), first.ID, one, first.Fence, jobs.Answer{}))
		if n := <-next; n != 1 {
			t.Errorf("after the end of one: got %d assignments, want 1", n)
		}
		testutil.Ok(t, other.Reload(nil, nil, agent.Limits{}, 0))
		if got := other.lease(two, 10); len(got) != 1 {
			t.Errorf("without a limit: got %d assignments, want 1", len(got))
		}
	})
}

// No more assignments of a role begin in a minute than its rate; looks that find no work do not count.
func TestRateOfARole(t *testing.T) {
	t.Parallel()
	redistest.Both(t, func(t *testing.T, rdb redis.UniversalClient) {
		r := newRig(t, rdb, func(c *setup) { c.Limits = agent.Limits{PerMinute: map[string]int{"validator": 3}} })
		id := r.register("one", 10, "validator")
		for range 5 {
			if got, err := r.Lease(t.Context(), id, nil, 10, 0); err != nil || len(got) != 0 {
				t.Fatalf("without work: got %d assignments, %v", len(got), err)
			}
		}
		r.put("validator", 5)
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		n := 0
		for ctx.Err() == nil {
			got, _ := r.Lease(ctx, id, nil, 10, time.Second)
			n += len(got)
		}
		if n != 3 {
			t.Errorf("began %d assignments, want 3", n)
		}
	})
}
