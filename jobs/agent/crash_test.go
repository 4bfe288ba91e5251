package agent_test

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"muster/internal/redistest"
	"muster/internal/testutil"
	"muster/jobs"
	"muster/tasks"
)

// connect returns another client of the Redis at an address. Closing it is for a service like the death of its
// process: it can change nothing any more.
func connect(t *testing.T, address string) redis.UniversalClient {
	t.Helper()
	opts := testutil.Must(tasks.ParseURL(address))(t)
	rdb := redis.NewUniversalClient(opts)
	t.Cleanup(func() { _ = rdb.Close() })
	return rdb
}

// The assignments of an agent are in Redis: a process that takes over lists them, and accepts the calls of the agent.
func TestAnotherProcessServesTheAssignmentsOfADeadOne(t *testing.T) {
	t.Parallel()
	address := redistest.URL(t)
	change := func(cfg *setup) { cfg.lease = 3 * time.Second }
	dies := connect(t, address)
	first := newRig(t, dies, change)
	id := first.register("one", 2, "validator")
	first.put("validator", 2)
	a, b := first.leaseOne(id), first.leaseOne(id)
	testutil.Ok(t, dies.Close())
	second := newRigOn(t, connect(t, address), first.items, change)
	if err := second.Complete(t.Context(), a.ID, id, a.Fence, jobs.Answer{}); err != nil {
		t.Errorf("complete: got %v", err)
	}
	testutil.Eventually(t, "the silent one is taken away", func() bool { return second.get(id).Held == 0 })
	if got := second.leaseOne(id); got.Key != b.Key {
		t.Errorf("got %s, want %s again", got.Key, b.Key)
	}
}
