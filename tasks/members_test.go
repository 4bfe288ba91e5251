package tasks_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/redis/go-redis/v9"

	"muster/internal/testutil"
	"muster/tasks"
	"muster/tasks/redistest"
	"muster/tasks/tasktype"
)

// Answer is the plan of ListPlan: numbers that each go to Of, or all to OfAll.
type Answer struct {
	How string
	Of  []int
}

// The tasks of lists. Of and OfAll fail on a negative number, and hold on one of heldFrom or more until they are revoked.
var (
	Of          = tasks.New[int, int]("t.of")
	OfAll       = tasks.New[[]int, []int]("t.ofall")
	Same        = tasks.New[[]int, []int]("t.same")
	InsteadList = tasks.New[tasks.Failure, []int]("t.insteadlist")
	InsteadFail = tasks.New[tasks.Failure, []int]("t.insteadfail")
	ListPlan    = tasks.New[Answer, []int]("t.listplan")
	SettledPlan = tasks.New[[]int, []tasks.Outcome[int]]("t.settledplan")
)

const heldFrom = 1_000_000

func (w *world) listing(m *tasks.Mux) {
	of := func(ctx context.Context, ns ...int) error {
		for _, n := range ns {
			switch {
			case n < 0:
				return fmt.Errorf("E%d", n)
			case n >= heldFrom:
				w.note("held", n)
				<-ctx.Done()
				return ctx.Err()
			}
		}
		return nil
	}
	tasks.Handle(m, Of, func(ctx context.Context, n int) (int, error) { return n, of(ctx, n) })
	tasks.Handle(m, OfAll, func(ctx context.Context, ns []int) ([]int, error) { return ns, of(ctx, ns...) })
	tasks.Handle(m, Same, func(_ context.Context, ns []int) ([]int, error) { return ns, nil })
	tasks.Handle(m, InsteadList, func(context.Context, tasks.Failure) ([]int, error) { return []int{7, 8}, nil })
	tasks.Handle(m, InsteadFail, func(context.Context, tasks.Failure) ([]int, error) { return nil, errors.New("no help") })
	tasks.HandlePlan(m, ListPlan, func(_ context.Context, a Answer) (tasks.Signature[[]int], error) {
		switch a.How {
		case "each":
			return tasks.Each(a.Of, Of), nil
		case "rescue":
			return tasks.Each(a.Of, Of).Rescue(InsteadList), nil
		case "map":
			return tasks.Map(Same.S(a.Of), Of), nil
		case "plan":
			return ListPlan.S(Answer{"each", a.Of}), nil
		}
		return OfAll.S(a.Of), nil
	})
	tasks.HandlePlan(m, SettledPlan, func(_ context.Context, ns []int) (tasks.Signature[[]tasks.Outcome[int]], error) {
		return tasks.Settle(tasks.Each(ns, Of)), nil
	})
}

// shown has the results of Wait, AsCompleted and Members for a workflow.
type shown struct{ wait, completed, members string }

// told waits for the end of a workflow that yields a list. Failures are in parentheses.
func told[O any](ctx context.Context, t *testing.T, run *tasks.AsyncResult[[]O]) (out shown) {
	var list []string
	completed := map[int]bool{}
	var found []tasks.Member[O]
	for m, err := range tasks.AsCompleted(ctx, run) {
		if err != nil {
			list = append(list, "failed: "+message(err))
			continue
		}
		if completed[m.Index] {
			t.Errorf("member %d came twice", m.Index)
		}
		completed[m.Index] = true
		found = append(found, m)
	}
	slices.SortFunc(found, func(a, b tasks.Member[O]) int { return cmp.Compare(a.Index, b.Index) })
	var all []string
	for _, m := range found {
		all = append(all, outcomeText(m.Value, m.Err))
	}
	out.completed = strings.Join(append(all, list...), " ")

	values, err := run.Wait(ctx)
	out.wait = listText(values, nil, err)
	values, done, err := tasks.Members(ctx, run)
	out.members = listText(values, done, err)
	return out
}

func message(err error) string {
	if f := (*tasks.Failure)(nil); errors.As(err, &f) {
		return f.Message
	}
	return err.Error()
}

func outcomeText(value any, err *tasks.Failure) string {
	if o, ok := value.(tasks.Outcome[int]); ok && err == nil {
		return outcomeText(o.Value, o.Err)
	}
	if err != nil {
		return "(" + err.Message + ")"
	}
	return fmt.Sprint(value)
}

func listText[O any](values []O, done []bool, err error) string {
	if err != nil {
		return "failed: " + message(err)
	}
	var out []string
	for i, v := range values {
		if done != nil && !done[i] {
			out = append(out, "-")
			continue
		}
		out = append(out, outcomeText(v, nil))
	}
	return strings.Join(out, " ")
}

// listCase is a shape of a workflow that yields a list, over the numbers 1, n and 3: n is 2, or the task on it fails, or
// holds until the workflow is revoked.
type listCase struct {
	shape string
	run   func(t *testing.T, w *world, n int) shown

	succeeds, fails, revoked shown
}

// lists makes a case: first tasks end before the workflow is revoked. For a success, all three results are the same.
func lists[O any](shape string, s func(ns []int) tasks.Signature[[]O], first int, succeeds string, fails, revoked shown) listCase {
	return listCase{shape, func(t *testing.T, w *world, n int) shown {
		run, err := s([]int{1, n, 3}).Send(limited(t), w.client)
		if err != nil {
			t.Fatal(err)
		}
		out := make(chan shown, 1)
		ctx := limited(t)
		go func() { out <- told(ctx, t, run) }()
		if n >= heldFrom {
			testutil.Eventually(t, "the first tasks have ended, and the last one waits", func() bool {
				ended := 0
				nodes, err := w.client.Nodes(ctx, run.ID())
				for _, n := range nodes {
					if n.Task == Of.Name() && n.Status == tasktype.Success {
						ended++
					}
				}
				return err == nil && ended == first && slices.Contains(w.noted("held"), n)
			})
			if err := run.Revoke(ctx); err != nil {
				t.Error(err)
			}
		}
		return <-out
	}, same(succeeds), fails, revoked}
}

// AsCompleted and Members report the same list as Wait, and the members of a failed list if they are known.
func TestMembersAgreeWithWait(t *testing.T) {
	t.Parallel()
	// A group or a map reports which member failed.
	failed, revoked := shown{"failed: E-2", "1 (E-2) 3", "1 - 3"}, shown{"failed: revoked", "1 (revoked) 3", "1 - 3"}
	// The members are unknown for a value that is not a list before it has ended.
	whole, revokedWhole := same("failed: E-2"), same("failed: revoked")
	settled, revokedSettled := same("1 (E-2) 3"), shown{"failed: revoked", "1 (revoked) 3 failed: revoked", "failed: revoked"}
	rescued := same("7 8")

	each := func(ns []int) tasks.Signature[[]int] { return tasks.Each(ns, Of) }
	mapped := func(ns []int) tasks.Signature[[]int] { return tasks.Map(Same.S(ns), Of) }
	plan := func(how string) func(ns []int) tasks.Signature[[]int] {
		return func(ns []int) tasks.Signature[[]int] { return ListPlan.S(Answer{how, ns}) }
	}
	type sig = tasks.Signature[[]int]
	type outcomes = tasks.Signature[[]tasks.Outcome[int]]
	cases := []listCase{
		lists("group", func(ns []int) sig { return tasks.Group(Of.S(ns[0]), Of.S(ns[1]), Of.S(ns[2])) }, 2, "1 2 3", failed, revoked),
		lists("each", each, 2, "1 2 3", failed, revoked),
		lists("map", mapped, 2, "1 2 3", failed, revoked),
		lists("map over a failure", func(ns []int) sig { return tasks.Map(OfAll.S(ns), Of) }, 0, "1 2 3", whole, revokedWhole),
		lists("map in After", func(ns []int) sig { return tasks.After(ID.S(1), mapped(ns)) }, 2, "1 2 3", failed, revoked),
		lists("each after a failure", func(ns []int) sig { return tasks.After(Of.S(ns[1]), tasks.Each([]int{1, 2, 3}, Of)) }, 0, "1 2 3",
			shown{"failed: E-2", "(E-2) (E-2) (E-2)", "- - -"}, shown{"failed: revoked", "(revoked) (revoked) (revoked)", "- - -"}),
		lists("empty group after a failure", func(ns []int) sig { return tasks.After(Of.S(ns[1]), tasks.Group[int]()) }, 0, "", whole, revokedWhole),
		lists("map with callbacks", func(ns []int) sig { return tasks.OnError(tasks.OnSuccess(mapped(ns), Total), Err) }, 2, "1 2 3", failed, revoked),
		lists("each with callbacks", func(ns []int) sig { return tasks.OnError(tasks.OnSuccess(each(ns), Total), Err) }, 2, "1 2 3", failed, revoked),
		lists("group that fails fast", func(ns []int) sig {
			first := tasks.Each([]int{ns[0], ns[2]}, Of)
			return tasks.Map(tasks.After(first, Same.S(ns[1:2])), Of, tasks.FailFast())
		}, 2, "2", shown{"failed: E-2", "(E-2)", "-"}, shown{"failed: revoked", "(revoked)", "-"}),
		lists("group of groups", func(ns []int) tasks.Signature[[][]int] { return tasks.Group(each(ns[:1]), each(ns[1:])) }, 2, "[1] [2 3]",
			shown{"failed: E-2", "[1] (E-2)", "[1] -"}, shown{"failed: revoked", "[1] (revoked)", "[1] -"}),

		lists("settled group", func(ns []int) outcomes { return tasks.Settle(tasks.Group(Of.S(ns[0]), Of.S(ns[1]), Of.S(ns[2]))) }, 2, "1 2 3", settled, revokedSettled),
		lists("settled each in After", func(ns []int) outcomes { return tasks.After(ID.S(1), tasks.Settle(each(ns))) }, 2, "1 2 3", settled, revokedSettled),
		lists("settled map", func(ns []int) outcomes { return tasks.Settle(mapped(ns)) }, 2, "1 2 3", settled, revokedSettled),
		lists("settled map over a failure", func(ns []int) outcomes { return tasks.Settle(tasks.Map(OfAll.S(ns), Of)) }, 0, "1 2 3", whole, revokedWhole),
		lists("settled task", func(ns []int) outcomes { return tasks.Settle(OfAll.S(ns)) }, 0, "1 2 3", whole, revokedWhole),
		lists("settled plan", func(ns []int) outcomes { return tasks.Settle(plan("each")(ns)) }, 2, "1 2 3", whole, revokedWhole),
		lists("settled rescue", func(ns []int) outcomes { return tasks.Settle(each(ns).Rescue(InsteadList)) }, 2, "1 2 3", rescued, revokedWhole),

		lists("rescued each", func(ns []int) sig { return each(ns).Rescue(InsteadList) }, 2, "1 2 3", rescued, revokedWhole),
		lists("rescued map", func(ns []int) sig { return mapped(ns).Rescue(InsteadList) }, 2, "1 2 3", rescued, revokedWhole),
		lists("rescued task", func(ns []int) sig { return OfAll.S(ns).Rescue(InsteadList) }, 0, "1 2 3", rescued, revokedWhole),
		lists("rescued rescue", func(ns []int) sig { return each(ns).Rescue(InsteadFail).Rescue(InsteadList) }, 2, "1 2 3", rescued, revokedWhole),
		lists("rescue that fails", func(ns []int) sig { return each(ns).Rescue(InsteadFail) }, 2, "1 2 3", same("failed: no help"), revokedWhole),

		lists("task", func(ns []int) sig { return OfAll.S(ns) }, 0, "1 2 3", whole, revokedWhole),
		lists("chord", func(ns []int) sig { return tasks.Chord(each(ns), Same) }, 2, "1 2 3", whole, revokedWhole),
		lists("chain", func(ns []int) sig { return tasks.Chain(Same.S(ns), OfAll) }, 0, "1 2 3", whole, revokedWhole),
		lists("task without elements", func(ns []int) sig { return tasks.After(Of.S(ns[1]), Same.S(nil)) }, 0, "", whole, revokedWhole),

		lists("plan of each", plan("each"), 2, "1 2 3", failed, revoked),
		lists("plan of a map", plan("map"), 2, "1 2 3", failed, revoked),
		lists("plan of a plan", plan("plan"), 2, "1 2 3", failed, revoked),
		lists("plan of a rescue", plan("rescue"), 2, "1 2 3", rescued, revokedWhole),
		lists("plan of a task", plan("task"), 0, "1 2 3", whole, revokedWhole),
		lists("plan of a settled list", func(ns []int) outcomes { return SettledPlan.S(ns) }, 2, "1 2 3", settled, revokedSettled),
		lists("rescued plan", func(ns []int) sig { return plan("each")(ns).Rescue(InsteadList) }, 2, "1 2 3", rescued, revokedWhole),
	}
	inWorlds(t, func(t *testing.T, w *world) {
		held := heldFrom
		for _, c := range cases {
			t.Run(c.shape, func(t *testing.T) {
				held++
				for _, row := range []struct {
					name string
					n    int
					want shown
				}{{"succeeds", 2, c.succeeds}, {"fails", -2, c.fails}, {"is revoked", held, c.revoked}} {
					if got := c.run(t, w, row.n); got != row.want {
						t.Errorf("one that %s:\ngot  %+v\nwant %+v", row.name, got, row.want)
					}
				}
			})
		}
	})
}

func same(text string) shown { return shown{text, text, text} }

// Members come one by one while others still run, failures among them, and the sequence ends with the last.
func TestMembersComeAsTheyComplete(t *testing.T) {
	t.Parallel()
	inWorlds(t, func(t *testing.T, w *world) {
		ctx := limited(t)
		held := tasks.New[int, int]("t.hold")
		run, err := tasks.Group(held.S(0), ID.S(7), Fail.S(1)).Send(ctx, w.client)
		if err != nil {
			t.Fatal(err)
		}
		var places []int
		for m, err := range tasks.AsCompleted(ctx, run) {
			if err != nil {
				t.Fatal(err)
			}
			places = append(places, m.Index)
			switch {
			case m.Index == 1 && (m.Value != 7 || m.Err != nil),
				m.Index == 2 && (m.Err == nil || m.Err.Message != "E1"),
				m.Index == 0 && (m.Err == nil || m.Err.Code != tasktype.CodeRevoked):
				t.Errorf("got %+v", m)
			}
			if len(places) == 2 { // the first member is still held
				if err := run.Revoke(ctx); err != nil {
					t.Fatal(err)
				}
			}
		}
		if len(places) != 3 || places[2] != 0 {
			t.Errorf("members came in the order %v", places)
		}

		mapped, err := tasks.Map(Range.S(20), ID).Send(ctx, w.client)
		if err != nil {
			t.Fatal(err)
		}
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

		none, err := tasks.Group[int]().Send(ctx, w.client)
		if err != nil {
			t.Fatal(err)
		}
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
			if err != nil {
				t.Fatal(err)
			}
			if n++; n < 2 {
				continue
			}
			if n == 2 {
				values, done, err := tasks.Members(ctx, run)
				if err != nil || !slices.Equal(done, []bool{true, false, true}) || values[0] != 1 || values[2] != 3 {
					t.Errorf("got members %v, %v, %v, want 1 and 3", values, done, err)
				}
				if err := run.Revoke(ctx); err != nil {
					t.Fatal(err)
				}
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
		if err != nil {
			t.Fatal(err)
		}
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
		if err != nil {
			t.Fatal(err)
		}
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
