package agent_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"muster/internal/redistest"
	"muster/internal/testutil"
	"muster/jobs"
	"muster/jobs/agent"
)

// A process waits for work with one connection, however many roles its agents have, and also for roles that are added later.
func TestOneConnectionWaitsForAllRoles(t *testing.T) {
	t.Parallel()
	rdb := redistest.New(t)
	var waits atomic.Int64
	rdb.AddHook(redistest.Calls(func(_ context.Context, next func() error, cmds ...redis.Cmder) error {
		if cmds[0].Name() == "blpop" {
			waits.Add(1)
			defer waits.Add(-1)
		}
		return next()
	}))
	r := newRig(t, rdb, nil)
	var polls sync.WaitGroup
	for a := range 2 {
		var roles []string
		for i := range agent.MaxRoles {
			roles = append(roles, fmt.Sprintf("role-%d-%d", a, i))
		}
		id := r.register(fmt.Sprint("agent-", a), 1, roles...)
		polls.Go(func() {
			if got := r.leaseOne(id); got.Role != roles[17] {
				t.Errorf("got work of %s, want %s", got.Role, roles[17])
			}
		})
		testutil.Eventually(t, "the agent waits", func() bool { return r.Waiting() == a+1 && waits.Load() > 0 })
		if n := waits.Load(); n > 1 {
			t.Errorf("%d waits at once, want 1", n)
		}
	}
	for a := range 2 {
		r.put(fmt.Sprintf("role-%d-17", a), 1)
	}
	polls.Wait()
}

// A poll that does not wait gets the work that there is.
func TestAPollWithoutWaitingGetsWhatThereIs(t *testing.T) {
	t.Parallel()
	r := newRig(t, redistest.New(t), nil)
	id := r.register("one", 5, "validator")
	r.put("validator", 3)
	for i, want := range []int{3, 0} {
		all, err := r.Lease(t.Context(), id, []string{"validator"}, 5, 0)
		if err != nil || len(all) != want {
			t.Errorf("poll %d: got %d assignments, %v, want %d", i, len(all), err, want)
		}
	}
}

// An agent that asks for more than it can do gets no more than its capacity, also from two processes at once.
func TestNoAgentHoldsMoreThanItsCapacity(t *testing.T) {
	t.Parallel()
	redistest.Both(t, func(t *testing.T, rdb redis.UniversalClient) {
		first := newRig(t, rdb, nil)
		rigs := []*rig{first, newRigOn(t, rdb, first.items, nil)}
		id := first.register("greedy", 3, "validator")
		first.put("validator", 50)
		var mu sync.Mutex
		total := 0
		var wg sync.WaitGroup
		for i := range 8 {
			wg.Go(func() {
				all, err := rigs[i%2].Lease(t.Context(), id, nil, 1_000_000_000, 300*time.Millisecond)
				if err != nil {
					t.Error(err)
				}
				mu.Lock()
				defer mu.Unlock()
				total += len(all)
			})
		}
		wg.Wait()
		if total != 3 || rigs[0].get(id).Held != 3 {
			t.Errorf("got %d assignments and %d held, want 3", total, rigs[0].get(id).Held)
		}
	})
}

func TestBadPollsAreRefused(t *testing.T) {
	t.Parallel()
	r := newRig(t, redistest.New(t), nil)
	id := r.register("one", 1, "validator")
	var wrong *jobs.FieldError
	if _, err := r.Lease(t.Context(), id, []string{"creator"}, 1, 0); !errors.As(err, &wrong) || wrong.Field != "roles[0]" {
		t.Errorf("a role that it does not have: got %v, want a *job.FieldError", err)
	}
	if _, err := r.Lease(t.Context(), id, nil, 0, 0); !errors.As(err, &wrong) || wrong.Field != "max" {
		t.Errorf("max 0: got %v, want a *job.FieldError", err)
	}
	if _, err := r.Lease(t.Context(), "unknown-1", nil, 1, 0); !errors.Is(err, agent.ErrNoAgent) {
		t.Errorf("no such agent: got %v, want %v", err, agent.ErrNoAgent)
	}
}

func TestAnAgentHasFewPollsAtATime(t *testing.T) {
	t.Parallel()
	r := newRig(t, redistest.New(t), nil)
	id := r.register("one", 1, "validator")
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	var refused atomic.Int64
	for range 30 {
		wg.Go(func() {
			_, err := r.Lease(ctx, id, nil, 1, 30*time.Second)
			if errors.Is(err, agent.ErrTooMany) {
				refused.Add(1)
			} else if !errors.Is(err, context.Canceled) {
				t.Errorf("got %v, want it to wait", err)
			}
		})
	}
	testutil.Eventually(t, "all but 16 are refused", func() bool { return refused.Load() == 14 })
	cancel()
	wg.Wait()
}

// A client that has gone does not keep the work until its lease ends.
func TestAPollThatIsCancelledLosesNoWork(t *testing.T) {
	t.Parallel()
	r := newRig(t, redistest.New(t), nil)
	id, other := r.register("one", 1, "validator"), r.register("two", 1, "validator")
	for range 20 {
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			got, err := r.Lease(ctx, id, nil, 1, 30*time.Second)
			for _, a := range got {
				err = errors.Join(err, r.Release(t.Context(), a.ID, id, a.Fence))
			}
			if err != nil && !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
		}()
		go r.put("validator", 1)
		cancel()
		<-ended
	}
	for range 20 {
		a := r.leaseOne(other)
		testutil.Ok(t, r.Complete(t.Context(), a.ID, other, a.Fence, jobs.Answer{}))
	}
	testutil.Eventually(t, "the agent that has gone holds nothing", func() bool { return r.get(id).Held == 0 })
}

func TestTheEndOfTheServiceEndsPolls(t *testing.T) {
	t.Parallel()
	r := newRig(t, redistest.New(t), nil)
	id := r.register("one", 1, "validator")
	got := make(chan int, 5)
	for range cap(got) {
		go func() {
			all, err := r.Lease(t.Context(), id, nil, 1, time.Hour)
			if err != nil {
				t.Error(err)
			}
			got <- len(all)
		}()
	}
	testutil.Eventually(t, "the polls wait", func() bool { return r.Waiting() == cap(got) })
	r.stop()
	for range cap(got) {
		if n := <-got; n != 0 {
			t.Errorf("a poll got %d assignments, want none", n)
		}
	}
}

// However many polls wait, one look asks for all.
func TestManyWaitingPollsMakeFewLooks(t *testing.T) {
	t.Parallel()
	rdb := redistest.New(t)
	var all atomic.Int64
	rdb.AddHook(redistest.Calls(func(_ context.Context, next func() error, cmds ...redis.Cmder) error {
		if args := cmds[0].Args(); len(args) > 3 && args[3] == "muster:{jobs}:ready:validator" {
			all.Add(1)
		}
		return next()
	}))
	r := newRig(t, rdb, func(cfg *setup) { cfg.Tick = 500 * time.Millisecond })
	const polls = 500
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var wg sync.WaitGroup
	ids := make([]string, polls)
	for i := range ids {
		ids[i] = r.register(fmt.Sprint("agent ", i), 1, "validator")
	}
	for _, id := range ids {
		wg.Go(func() {
			if got, err := r.Lease(ctx, id, nil, 1, 30*time.Second); err != nil && ctx.Err() == nil {
				t.Errorf("got %d, %v", len(got), err)
			}
		})
	}
	testutil.Eventually(t, "all polls wait", func() bool { return r.Waiting() == polls })
	began, before := time.Now(), all.Load()
	testutil.Eventually(t, "time for some ticks has passed", func() bool { return time.Since(began) > 3*time.Second })
	looks, ticks := all.Load()-before, int64(time.Since(began)/(250*time.Millisecond))
	if looks == 0 || looks > 2*ticks {
		t.Errorf("%d polls made %d looks in %v, want at most %d", polls, looks, time.Since(began), 2*ticks)
	}
	cancel()
	wg.Wait()
}

// The least loaded for its capacity gets work first.
func TestWorkIsBalancedByCapacity(t *testing.T) {
	t.Parallel()
	redistest.Both(t, func(t *testing.T, rdb redis.UniversalClient) {
		// No tick wakes an agent while an item is put: it would not wait then, and another one would get the item.
		r := newRig(t, rdb, func(cfg *setup) { cfg.Tick = time.Hour })
		capacities := []int{1, 2, 4, 8}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		var wg sync.WaitGroup
		ids := make([]string, len(capacities))
		for i, n := range capacities {
			ids[i] = r.register(fmt.Sprint("agent ", i), 4*n, "validator")
			wg.Go(func() {
				for ctx.Err() == nil { // it keeps its work
					_, _ = r.Lease(ctx, ids[i], nil, 100, 30*time.Second)
				}
			})
		}
		// Half of their total capacity, one at a time.
		for i := range 30 {
			testutil.Eventually(t, "all agents wait", func() bool { return r.Waiting() == len(ids) })
			r.put("validator", 1)
			testutil.Eventually(t, "the item is taken", func() bool { return r.counts().Validating == int64(i+1) })
		}
		for i, n := range capacities {
			if got := r.get(ids[i]).Held; got < 2*n-2 || got > 2*n+2 {
				t.Errorf("the agent with capacity %d holds %d, want about %d", 4*n, got, 2*n)
			}
		}
		cancel()
		wg.Wait()
	})
}

// An agent gets work after its assignments were counted in Redis, and before the count is stored.
func TestARecountKeepsWhatWasTakenMeanwhile(t *testing.T) {
	t.Parallel()
	rdb := redistest.New(t)
	r := newRig(t, rdb, func(c *setup) { c.Tick = time.Hour })
	id := r.register("one", 4, "validator")
	ctx, cancel := context.WithCancel(t.Context())
	polls := make(chan int, 2)
	for range 2 {
		go func() {
			got, _ := r.Lease(ctx, id, nil, 1, 30*time.Second)
			polls <- len(got)
		}()
	}
	testutil.Eventually(t, "both polls wait", func() bool { return r.Waiting() == 2 })
	taken := false
	rdb.AddHook(redistest.Calls(func(ctx context.Context, next func() error, _ ...redis.Cmder) error {
		err := next()
		if err == nil && ctx.Value(marked{}) != nil && !taken {
			taken = true
			r.put("validator", 1)
			if n := <-polls; n != 1 {
				t.Errorf("the poll got %d assignments, want 1", n)
			}
		}
		return err
	}))
	if err := r.Recount(context.WithValue(ctx, marked{}, true)); err != nil || !taken {
		t.Fatalf("recount: taken %v, %v", taken, err)
	}
	if held := r.Load(id); !slices.Equal(held, []int{1}) {
		t.Errorf("the other poll believes that the agent holds %v, want [1]", held)
	}
	cancel()
	<-polls
}

// Of equal agents, the one that is idle for longer gets the next work.
func TestTheLongestIdleGetsTheNextWork(t *testing.T) {
	t.Parallel()
	r := newRig(t, redistest.New(t), func(c *setup) { c.Tick = 5 * time.Millisecond }) // a tick is due whenever work arrives
	const agents = 4
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var wg sync.WaitGroup
	order := make(chan int, 100)
	for i := range agents {
		id := r.register(fmt.Sprint("agent ", i), 1, "validator")
		wg.Go(func() {
			for ctx.Err() == nil {
				got, _ := r.Lease(ctx, id, nil, 1, 30*time.Second)
				for _, a := range got {
					if err := r.Complete(t.Context(), a.ID, id, a.Fence, jobs.Answer{}); err != nil {
						t.Error(err)
					}
					order <- i
				}
			}
		})
	}
	counts := map[int]int{}
	for range 40 {
		testutil.Eventually(t, "all agents wait", func() bool { return r.Waiting() == agents })
		r.put("validator", 1)
		counts[<-order]++
	}
	for i := range agents {
		if counts[i] < 5 {
			t.Errorf("agent %d got %d of 40, want about 10: %v", i, counts[i], counts)
		}
	}
	cancel()
	wg.Wait()
}

func TestADrainedAgentGetsNothingNewAndMayFinish(t *testing.T) {
	t.Parallel()
	redistest.Both(t, func(t *testing.T, rdb redis.UniversalClient) {
		r := newRig(t, rdb, nil)
		id := r.register("one", 5, "validator")
		r.put("validator", 1)
		a := r.leaseOne(id)
		testutil.Ok(t, r.Drain(t.Context(), id, true))
		r.put("validator", 1)
		if got, err := r.Lease(t.Context(), id, nil, 1, 200*time.Millisecond); err != nil || len(got) != 0 {
			t.Errorf("drained: got %d assignments, %v, want none", len(got), err)
		}
		if got, err := r.Heartbeat(t.Context(), id); err != nil || got.State != agent.StateDraining {
			t.Errorf("heartbeat: got state %s, %v, want draining", got.State, err)
		}
		if roles, err := r.Roles(t.Context()); err != nil || roles["validator"] != 0 {
			t.Errorf("roles: got %v, %v, want no validator", roles, err)
		}
		if err := r.Complete(t.Context(), a.ID, id, a.Fence, jobs.Answer{}); err != nil {
			t.Errorf("complete: got %v", err)
		}
		testutil.Ok(t, r.Drain(t.Context(), id, false))
		r.leaseOne(id)
		if err := r.Drain(t.Context(), "x", true); !errors.Is(err, agent.ErrNoAgent) {
			t.Errorf("no such agent: got %v, want %v", err, agent.ErrNoAgent)
		}
	})
}

// Who may read a job is decided by the assignments that agents hold now. Other agents cost no commands.
func TestAgentsWorkOnTheJobsOfTheirAssignments(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, rdb redis.UniversalClient) {
		r := newRig(t, rdb, nil)
		for i := range 50 {
			r.register(fmt.Sprint("other-", i), 1, "creator") // without an owner
		}
		r.put("creator", 1)
		r.leaseOne(r.register("other-1", 1, "creator"))
		var commands atomic.Int64
		rdb.AddHook(redistest.Calls(func(ctx context.Context, next func() error, cmds ...redis.Cmder) error {
			if ctx.Value(marked{}) != nil {
				commands.Add(int64(len(cmds)))
			}
			return next()
		}))
		a, _, err := r.Register(t.Context(), agent.Registration{Name: "one", Roles: []string{"validator"}, Owner: "key:mine"})
		testutil.Ok(t, err)
		works := func(owner, job string) bool {
			t.Helper()
			before := commands.Load()
			got, err := r.WorksOn(context.WithValue(t.Context(), marked{}, true), owner, job)
			if n := commands.Load() - before; n > 4 {
				t.Errorf("WorksOn sent %d commands, want at most 4", n)
			}
			testutil.Ok(t, err)
			return got
		}
		if works("key:mine", r.items.jobs[0]) {
			t.Error("an agent works on the job of an agent without an owner")
		}
		r.put("validator", 1)
		got := r.leaseOne(a.ID)
		if holder, err := r.Holder(t.Context(), got.ID); holder != a.ID || err != nil {
			t.Errorf("Holder = %q, %v; want %s", holder, err, a.ID)
		}
		for _, id := range []string{"", "x", strings.Repeat("0", 32)} {
			if holder, err := r.Holder(t.Context(), id); !errors.Is(err, agent.ErrNoneSuch) {
				t.Errorf("Holder(%q) = %q, %v; want ErrNoneSuch", id, holder, err)
			}
		}
		if !works("key:mine", got.JobID) || works("key:mine", r.items.jobs[0]) || works("key:other", got.JobID) {
			t.Error("want the owner of the agent to work on the job of its assignment only, and no other owner")
		}
		testutil.Ok(t, r.Complete(t.Context(), got.ID, a.ID, got.Fence, jobs.Answer{}))
		if works("key:mine", got.JobID) {
			t.Error("an agent whose assignment has ended works on its job")
		}
	})
}
