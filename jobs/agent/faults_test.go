package agent_test

import (
	"errors"
	"testing"
	"time"

	"muster/internal/redistest"
	"muster/internal/testutil"
	"muster/jobs"
	"muster/jobs/agent"
)

// Any call of a process that gives out work can go wrong: an agent that repeats its calls settles each item, and in the
// end it holds nothing.
func TestAgentsSurviveAFaultAtAnyCall(t *testing.T) {
	t.Parallel()
	redistest.EachFault(t, map[redistest.Kind]int{
		redistest.Refused: 4, redistest.ReplyLost: 4, redistest.Repeated: 3, redistest.Slow: 3,
	}, agentsWithFault)
}

func agentsWithFault(t *testing.T, f *redistest.Fault) {
	const items = 4
	ctx, url := t.Context(), redistest.URL(t)
	change := func(cfg *setup) { // few calls whose number depends on the time that the scenario takes
		cfg.Tick, cfg.HealthEvery = time.Second, time.Minute
		cfg.lease = 3 * time.Second // lost work is assigned again after it
	}
	good := newRig(t, redistest.NewFault(redistest.Refused, 0).Client(t, url), change)
	good.put("validator", items)
	rdb := f.Client(t, url)
	f.Arm()
	r := newRigOn(t, rdb, good.items, change)
	again := func(what string, call func() error) {
		t.Helper()
		testutil.Eventually(t, what, func() bool {
			err := call()
			if err != nil && !errors.Is(err, redistest.ErrFault) && !errors.Is(err, jobs.ErrLeaseLost) && !errors.Is(err, agent.ErrNoneSuch) {
				t.Fatalf("%s: %v", what, err)
			}
			return !errors.Is(err, redistest.ErrFault)
		})
	}
	var id string
	again("register", func() error {
		a, _, err := r.Register(ctx, agent.Registration{Name: "one", Roles: []string{"validator"}, Capacity: 2})
		id = a.ID
		return err
	})
	testutil.Eventually(t, "all items are done", func() bool {
		var got []agent.Assignment
		again("lease", func() (err error) {
			got, err = r.Lease(ctx, id, nil, 2, time.Second)
			return err
		})
		for _, a := range got {
			again("heartbeat", func() error { _, err := r.Heartbeat(ctx, id); return err })
			again("complete", func() error {
				return r.Complete(ctx, a.ID, id, a.Fence, jobs.Answer{Usage: map[string]int64{"tokens": 1}})
			})
		}
		return good.counts().Integrated == items
	})
	f.Release()
	testutil.Eventually(t, "the agent holds nothing", func() bool { return good.get(id).Held == 0 })
	if got := good.counts(); got != (jobs.Counts{Integrated: items}) {
		t.Errorf("items: got %+v, want %d integrated", got, items)
	}
}
