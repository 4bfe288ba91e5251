package tasks_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"pgregory.net/rapid"

	"muster/internal/redistest"
	"muster/internal/testutil"
	"muster/tasks"
	"muster/tasks/internal/canvas"
	"muster/tasks/tasktype"
)

// choices makes the choices of a canvas.
type choices struct{ t *rapid.T }

func (c choices) Int(lo, hi int, what string) int { return rapid.IntRange(lo, hi).Draw(c.t, what) }

// AsCompleted, Members, Wait and ValueOf agree with the plain evaluation of any canvas whose result is a list. If a group ends
// with its first failure, or the workflow is revoked, timing decides which members have a value; each comes once anyway.
func TestMembersOfAnyCanvas(t *testing.T) {
	t.Parallel()
	client, _ := startMux(t, redistest.New(t), func(m *tasks.Mux) { canvas.Handle(m, nil, nil) }, func(c *tasks.WorkerConfig) { c.Grace = time.Second })
	rapid.Check(t, func(rt *rapid.T) {
		s, runs := canvas.DrawList(choices{rt}, 1), canvas.NewRuns()
		all := canvas.EvaluateAll(s, runs)
		nums, lists := s.Signatures()
		want := all[len(s.Defs)-1]
		ctx, cancel := context.WithTimeout(t.Context(), waitLimit)
		defer cancel()
		run, err := lists[len(s.Defs)-1].Send(ctx, client)
		if err != nil {
			rt.Fatalf("send: %v", err)
		}
		loose := *runs.Fast
		if rapid.IntRange(0, 3).Draw(rt, "revoked") == 0 {
			loose = true
			if err := run.Revoke(ctx); err != nil {
				rt.Fatal(err)
			}
		}
		agrees := func(what string, want canvas.Result, got any, value any, err error) {
			var f *tasks.Failure
			switch failed := errors.As(err, &f); {
			case err != nil && !failed:
				rt.Fatalf("%s: %v", what, err)
			case loose:
			case failed != want.Failed() || failed && !want.Causes[f.Message] || !failed && fmt.Sprint(got) != fmt.Sprint(value): // null is an empty list
				raw, _ := json.Marshal(s)
				rt.Errorf("%s: got %v, %v, want %v or one of %v\n%s", what, got, err, value, want.Causes, raw)
			}
		}
		members := map[int]bool{}
		for m, err := range tasks.AsCompleted(ctx, run) {
			if err != nil {
				if errors.As(err, new(*tasks.Failure)) && (loose || want.Failed()) {
					continue
				}
				rt.Fatal(err)
			}
			if members[m.Index] {
				rt.Errorf("member %d came twice", m.Index)
			}
			members[m.Index] = true
			switch {
			case m.Index < len(want.Members):
				var err error
				if m.Err != nil {
					err = m.Err
				}
				agrees(fmt.Sprint("member ", m.Index), want.Members[m.Index], m.Value, want.Members[m.Index].N, err)
			case !loose && !want.Failed() && (m.Err != nil || m.Value != want.List[m.Index]):
				rt.Errorf("got %+v, want %v", m, want.List)
			}
		}
		if err := run.WaitAll(ctx); err != nil {
			rt.Fatal(err)
		}
		if !loose && (!want.Failed() || want.Members != nil) && len(members) != len(want.List) {
			rt.Errorf("got members %v, want %v", members, want.List)
		}
		got, err := run.Wait(ctx)
		agrees("list", want, got, want.List, err)
		for i, part := range nums {
			got, err := tasks.ValueOf(ctx, run, part)
			agrees("value of "+s.Defs[i].Kind, all[i], got, all[i].N, err)
		}
		for i, part := range lists {
			got, err := tasks.ValueOf(ctx, run, part)
			agrees("value of "+s.Defs[i].Kind, all[i], got, all[i].List, err)
		}
	})
}

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
		for m, err := range tasks.AsCompleted(ctx, tasks.Attach[[]int](w.client, "nowhere")) {
			if !errors.Is(err, tasks.ErrNotFound) {
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

// fieldCount counts the fields of hashes that a client reads.
type fieldCount struct{ fields, calls atomic.Int64 }

// countedWorld returns a world, and a client whose reads are counted.
func countedWorld(t *testing.T) (*world, *tasks.Client, *fieldCount) {
	url := redistest.URL(t)
	connect := func() *redis.Client {
		opts := testutil.Must(redis.ParseURL(url))(t)
		rdb := redis.NewClient(opts)
		t.Cleanup(func() { _ = rdb.Close() })
		return rdb
	}
	w := newWorld(t, connect())
	count, looker := &fieldCount{}, connect()
	looker.AddHook(redistest.Before(func(_ context.Context, cmd redis.Cmder) {
		if cmd.Name() == "hmget" {
			count.fields.Add(int64(len(cmd.Args()) - 2))
			count.calls.Add(1)
		}
	}))
	c := newClient(t, looker)
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

// valueOf checks the value of a part.
func valueOf[P, O any](t *testing.T, run *tasks.Run[O], what string, part tasks.Signature[P], want P) {
	t.Helper()
	got, err := tasks.ValueOf(limited(t), run, part)
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("value of the %s: got %v, %v, want %v", what, got, err, want)
	}
}

// failureOf checks that a part has no value.
func failureOf[P, O any](t *testing.T, run *tasks.Run[O], what string, part tasks.Signature[P], want string) {
	t.Helper()
	got, err := tasks.ValueOf(limited(t), run, part)
	if f := (*tasks.Failure)(nil); !errors.As(err, &f) || f.Message != want {
		t.Errorf("value of the %s: got %v, %v, want a failure %q", what, got, err, want)
	}
}

// Joins, lists of lists and plans have values, whatever options they were sent with: TestMembersOfAnyCanvas has none of them.
func TestValueOfYieldsEachPart(t *testing.T) {
	t.Parallel()
	inWorlds(t, func(t *testing.T, w *world) {
		for _, opts := range [][]tasks.SendOption{nil, {tasks.MaxRetry(1), tasks.ConstantBackoff(time.Millisecond), tasks.Expires(time.Hour), tasks.Priority(1)}} {
			nested := tasks.Group(tasks.Group(ID.S(1), ID.S(2)).With(tasks.AtMost(1)), tasks.Each([]int{5, 6}, ID))
			chord := tasks.Chord(nested, Sums)
			list := ListPlan.S(Answer{"plan", []int{1, 2}})
			pair := tasks.Join(chord, list)
			run := sent(t, w, pair, opts...)
			valueOf(t, run, "group of groups", nested, [][]int{{1, 2}, {5, 6}})
			valueOf(t, run, "chord", chord, 14)
			valueOf(t, run, "plan of a plan", list, []int{1, 2})
			valueOf(t, run, "join", pair, tasks.Pair[int, []int]{First: 14, Second: []int{1, 2}})
		}
	})
}

// The value of a part is there, or its failure, while the rest of the workflow runs.
func TestValueOfAPartComesBeforeTheEnd(t *testing.T) {
	t.Parallel()
	inWorlds(t, func(t *testing.T, w *world) {
		ctx := limited(t)
		first := Hold.S("first")
		last := Hold.S("last")
		group := tasks.Group(Fail.S(7), Hold.S("last"))
		run := sent(t, w, tasks.Chord(tasks.Group(first, last, tasks.Chord(group, Sum)), Sum))
		failureOf(t, run, "group of which a member has failed", group, "E7")
		short, cancel := context.WithTimeout(ctx, 20*time.Millisecond)
		if _, err := tasks.ValueOf(short, run, first); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("value of a running task: got %v, want the end of the context", err)
		}
		cancel()
		got := make(chan error, 1)
		go func() {
			v, err := tasks.ValueOf(ctx, run, first)
			if err == nil && v != 1 {
				err = errors.New("it is not 1")
			}
			got <- err
		}()
		w.open("first")
		if err := <-got; err != nil {
			t.Errorf("value of a finished task: %v", err)
		}
		testutil.Ok(t, run.Revoke(ctx))
		failureOf(t, run, "task that was revoked", last, "revoked")
		if _, err := tasks.ValueOf(ctx, run, last); !errors.Is(err, tasks.ErrRevoked) {
			t.Errorf("value of a revoked task: got %v, want %v", err, tasks.ErrRevoked)
		}
	})
}

// The error about an unknown part names the way to refer to it.
func TestValueOfRejectsPartsThatWereNotSent(t *testing.T) {
	t.Parallel()
	inWorlds(t, func(t *testing.T, w *world) {
		ctx := limited(t)
		one := ID.S(1)
		run := sent(t, w, one, tasks.ID("single"))
		valueOf(t, run, "single task", one, 1)
		other, err := one.Send(ctx, w.client, tasks.ID("single"))
		if !errors.Is(err, tasks.ErrDuplicate) {
			t.Fatalf("got %v, want %v", err, tasks.ErrDuplicate)
		}
		for what, get := range map[string]func() (int, error){
			"of another task":              func() (int, error) { return tasks.ValueOf(ctx, run, ID.S(1)) },
			"with other options":           func() (int, error) { return tasks.ValueOf(ctx, run, one.With(tasks.MaxRetry(1))) },
			"of no signature":              func() (int, error) { return tasks.ValueOf(ctx, run, tasks.Signature[int]{}) },
			"by an attached handle":        func() (int, error) { return tasks.ValueOf(ctx, tasks.Attach[int](w.client, run.ID()), one) },
			"by the handle of a duplicate": func() (int, error) { return tasks.ValueOf(ctx, other, one) },
		} {
			if _, err := get(); err == nil || !strings.Contains(err.Error(), "NodeValue") {
				t.Errorf("value %s: got %v, want an error that names NodeValue", what, err)
			}
		}
	})
}

// Nodes are named as Nodes lists them, including nodes of plans and members of maps.
func TestNodeValueYieldsAnyNode(t *testing.T) {
	t.Parallel()
	inWorlds(t, func(t *testing.T, w *world) {
		ctx := limited(t)
		s := tasks.OnError(tasks.Chain(tasks.Map(ListPlan.S(Answer{"each", []int{4, 5}}), Inc), Sum), Err)
		run := sent(t, w, s, tasks.ID("named"))
		wantValue(t, run, 11)
		for _, n := range nodes(t, w, run.ID()) {
			raw, err := run.NodeValue(ctx, n.ID)
			if err != nil || !json.Valid(raw) {
				t.Errorf("value of %s %s: got %s, %v", n.ID, n.Task, raw, err)
			}
		}
		if got, err := run.NodeValue(ctx, "1.1"); err != nil || string(got) != "6" {
			t.Errorf("value of a member of the map: got %s, %v, want 6", got, err)
		}
		for node, want := range map[string]string{"99": "no node 99", "0:99": "no node", "2:0": "no node", "1.7": "2 members", "0.0": "no node", "x": "expected an index", "3": "did not run"} {
			if _, err := run.NodeValue(ctx, node); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("value of node %s: got %v, want an error with %q", node, err, want)
			}
		}
		if _, err := w.client.Workflow("nowhere").NodeValue(ctx, "0"); !errors.Is(err, tasks.ErrNotFound) {
			t.Errorf("value in an unknown workflow: got %v, want %v", err, tasks.ErrNotFound)
		}
	})
}

// A signature or a handle is not a valid value of a task.
func TestHandlesDoNotMarshal(t *testing.T) {
	t.Parallel()
	inWorlds(t, func(t *testing.T, w *world) {
		ctx := limited(t)
		run := sent(t, w, ID.S(1))
		for want, s := range map[string]tasks.Signature[int]{
			"HandlePlan": tasks.New[tasks.Signature[int], int]("t.signature").S(ID.S(1)),
			"Attach":     tasks.New[*tasks.Run[int], int]("t.result").S(run),
			"keep its":   tasks.New[[]tasks.Run[int], int]("t.results").S([]tasks.Run[int]{*run}),
			"send it":    tasks.Chord(tasks.Each([]tasks.Signature[int]{ID.S(1)}, tasks.New[tasks.Signature[int], int]("t.signature")), Sum),
		} {
			if _, err := s.Send(ctx, w.client); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("got %v, want an error with %q", err, want)
			}
		}
		if err := json.Unmarshal([]byte("{}"), &tasks.Signature[int]{}); err == nil {
			t.Error("a Signature was made from JSON")
		}
		if err := json.Unmarshal([]byte("{}"), &tasks.Run[int]{}); err == nil {
			t.Error("a handle was made from JSON")
		}
	})
}
