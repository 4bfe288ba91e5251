package agent_test

import (
	"fmt"
	"sync"
	"sync/atomic"
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

// Many agents, some of which vanish with work, settle every item once.
func TestEveryItemIsSettledOnceAlthoughAgentsVanish(t *testing.T) {
	t.Parallel()
	redistest.Both(t, func(t *testing.T, rdb redis.UniversalClient) {
		const items, agents = 60, 8
		change := func(cfg *setup) { cfg.lease = 500 * time.Millisecond }
		first := newRig(t, rdb, change)
		rigs := []*rig{first, newRigOn(t, rdb, first.items, change)}
		first.put("validator", items)
		var wg sync.WaitGroup
		var settled atomic.Int64
		for i := range agents {
			id := rigs[0].register(fmt.Sprint("agent ", i), 5, "validator")
			wg.Go(func() {
				for n := 0; settled.Load() < items; n++ {
					r := rigs[(i+n)%2]
					got, err := r.Lease(t.Context(), id, nil, 5, 200*time.Millisecond)
					if err != nil {
						t.Error(err)
						return
					}
					for j, a := range got {
						if (n+j)%7 == 3 {
							continue // it vanishes
						}
						usage := map[string]int64{"n": 1}
						if err := r.Complete(t.Context(), a.ID, id, a.Fence, jobs.Answer{Usage: usage}); err == nil {
							settled.Add(1)
						}
					}
				}
			})
		}
		wg.Wait()
		if got := first.counts().Integrated; got != items || settled.Load() != items {
			t.Errorf("%d items are done and %d were settled, want %d", got, settled.Load(), items)
		}
		usage, n := first.usage()
		if n != items || usage["n"] < items { // usage of a lost attempt counts, too
			t.Errorf("the usage is %d of %d items, want at least %d of %d", usage["n"], n, items, items)
		}
		testutil.Eventually(t, "no agent holds anything", func() bool {
			all := testutil.Must(rigs[0].List(t.Context()))(t)
			for _, a := range all {
				if a.Held > 0 {
					return false
				}
			}
			return true
		})
	})
}
