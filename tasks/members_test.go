package tasks_test

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/redis/go-redis/v9"

	"muster/internal/testutil"
	"muster/tasks"
	"muster/tasks/redistest"
	"muster/tasks/tasktype"
)

// Answer is the plan of ListPlan: numbers that each go to Of, by another plan or not.
type Answer struct {
	How string
	Of  []int
}

// The tasks of lists. Of holds on a number of heldFrom or more until it is revoked.
var (
	Of       = tasks.New[int, int]("t.of")
	ListPlan = tasks.New[Answer, []int]("t.listplan")
)

const heldFrom = 1_000_000

func (w *world) listing(m *tasks.Mux) {
	tasks.Handle(m, Of, func(ctx context.Context, n int) (int, error) {
		if n >= heldFrom {
			<-ctx.Done()
		}
		return n, ctx.Err()
	})
	tasks.HandlePlan(m, ListPlan, func(_ context.Context, a Answer) (tasks.Signature[[]int], error) {
		if a.How == "plan" {
			return ListPlan.S(Answer{"each", a.Of}), nil
		}
		return tasks.Each(a.Of, Of), nil
	})
}

// Members come one by one while others still run, failures among them, and the sequence ends with the last.
func TestMembersComeAsTheyComplete(t *testing.T) {
	t.Parallel()
	inWorlds(t, func(t *testing.T, w *world) {
		ctx := limited(t)
		held := tasks.New[int, int]("t.hold")
		run := sent(t, w, tasks.Group(held.S(0), ID.S(7), Fail.S(1)))
		var places []int
		for m, err := range tasks.AsCompleted(ctx, run) {
			testutil.Ok(t, err)
			places = append(places, m.Index)
			switch {
			case m.Index == 1 && (m.Value != 7 || m.Err != nil),
				m.Index == 2 && (m.Err == nil || m.Err.Message != "E1"),
				m.Index == 0 && (m.Err == nil || m.Err.Code != tasktype.CodeRevoked):
				t.Errorf("got %+v", m)
			}
			if len(places) == 2 { // the first member is still held
				testutil.Ok(t, run.Revoke(ctx))
			}
		}
		if len(places) != 3 || places[2] != 0 {
			t.Errorf("members came in the order %v", places)
		}

		mapped := sent(t, w, tasks.Map(Range.S(20), ID))
		var values []int
		for m, err := range tasks.AsCompleted(ctx, mapped) {
			if err != nil || m.Err != nil || m.Index != m.Value {
				t.Fatalf("got %+v, %v", m, err)
			}
			values = append(values, m.Value)
		}
		if slices.Sort(values); !slices.Equal(values, ints(20)) {
			t.Errorf("the map yielded %v", values)
		}

		none := sent(t, w, tasks.Group[int]())
		for m, err := range tasks.AsCompleted(ctx, none) {
			t.Errorf("a group of none yielded %+v, %v", m, err)
		}
		for m, err := range tasks.AsCompleted(ctx, tasks.Attach[[]int](w.client, "nowhere")) {
			if !errors.Is(err, tasks.ErrUnknown) {
				t.Errorf("an unknown workflow yielded %+v, %v", m, err)
			}
		}
	})
}

// Members of a plan come while it still runs.
func TestMembersOfAPlanComeWhileItRuns(t *testing.T) {
	t.Parallel()
	inWorlds(t, func(t *testing.T, w *world) {
		ctx := limited(t)
		run := sent(t, w, ListPlan.S(Answer{"plan", []int{1, heldFrom, 3}}))
		n := 0
		for m, err := range tasks.AsCompleted(ctx, run) {
			testutil.Ok(t, err)
			if n++; n < 2 {
				continue
			}
			if n == 2 {
				values, done, err := tasks.Members(ctx, run)
				if err != nil || !slices.Equal(done, []bool{true, false, true}) || values[0] != 1 || values[2] != 3 {
					t.Errorf("got members %v, %v, %v, want 1 and 3", values, done, err)
				}
				testutil.Ok(t, run.Revoke(ctx))
				continue
			}
			if m.Index != 1 || m.Err == nil || m.Err.Code != tasktype.CodeRevoked {
				t.Errorf("got %+v, want member 1 revoked", m)
			}
		}
		if n != 3 {
			t.Errorf("got %d members, want 3", n)
		}
	})
}

// fieldCount counts the fields of hashes that a connection reads.
type fieldCount struct{ fields, calls atomic.Int64 }

// DialHook implements redis.Hook.
func (c *fieldCount) DialHook(next redis.DialHook) redis.DialHook { return next }

// ProcessHook implements redis.Hook.
func (c *fieldCount) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if cmd.Name() == "hmget" {
			c.fields.Add(int64(len(cmd.Args()) - 2))
			c.calls.Add(1)
		}
		return next(ctx, cmd)
	}
}

// ProcessPipelineHook implements redis.Hook.
func (c *fieldCount) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// countedWorld returns a world, and a client whose reads are counted.
func countedWorld(t *testing.T) (*world, *tasks.Client, *fieldCount) {
	url := redistest.URL(t)
	connect := func() *redis.Client {
		opts, err := redis.ParseURL(url)
		testutil.Ok(t, err)
		rdb := redis.NewClient(opts)
		t.Cleanup(func() { _ = rdb.Close() })
		return rdb
	}
	w := newWorld(t, connect())
	count, looker := &fieldCount{}, connect()
	looker.AddHook(count)
	c := tasks.NewClient(looker)
	t.Cleanup(func() { _ = c.Close() })
	return w, c, count
}

// A value of many members needs few reads. The graph of a workflow that has ended and whose id was chosen is not kept: it
// is read once for each look, and not for each member.
func TestValueOfManyMembersNeedsFewReads(t *testing.T) {
	t.Parallel()
	w, c, count := countedWorld(t)
	run := sent(t, w, tasks.Each(ints(500), ID), tasks.ID("chosen"))
	ended(t, w, run.ID())
	if got, err := tasks.Attach[[]int](c, run.ID()).Wait(limited(t)); err != nil || !slices.Equal(got, ints(500)) {
		t.Errorf("got %v, %v", got, err)
	}
	if got := count.calls.Load(); got > 10 {
		t.Errorf("Wait read %d times, want at most 10", got)
	}
}

// Members that were yielded are not read again.
func TestMembersOfALargeListAreReadOnce(t *testing.T) {
	t.Parallel()
	w, c, count := countedWorld(t)
	ctx := limited(t)
	const members, looks = 4_000, 5
	run := sent(t, w, tasks.Each(append(ints(members-1), heldFrom), Of))
	n := 0
	rest := make(chan error, 1)
	for m, err := range tasks.AsCompleted(ctx, tasks.Attach[[]int](c, run.ID())) {
		testutil.Ok(t, err)
		if n++; n != members-1 {
			continue
		}
		if m.Err != nil {
			t.Errorf("got %+v", m)
		}
		count.fields.Store(0)
		count.calls.Store(0)
		go func() {
			testutil.Becomes(func() bool { return count.calls.Load() >= 3*looks })
			if got := count.fields.Load(); got > 20*looks {
				t.Errorf("%d looks for one member read %d fields, want at most 20 each", looks, got)
			}
			rest <- run.Revoke(ctx)
		}()
	}
	if err := <-rest; err != nil {
		t.Error(err)
	}
	if n != members {
		t.Errorf("got %d members, want %d", n, members)
	}
}
