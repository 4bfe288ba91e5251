package tasks_test

import (
	"context"
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	"muster/internal/testutil"
	"muster/tasks"
)

// WaitsForNode waits for a node of another workflow, and yields the error of that.
var WaitsForNode = tasks.New[string, string]("t.waitsfornode")

func (w *world) waitsForNode(m *tasks.Mux) {
	tasks.Handle(m, WaitsForNode, func(ctx context.Context, id string) (string, error) {
		if _, err := tasks.NodeValue[int](ctx, w.client, id, "0"); err != nil {
			return err.Error(), nil
		}
		return "", nil
	})
}

// valueOf checks the value of a part.
func valueOf[P, O any](t *testing.T, run *tasks.AsyncResult[O], what string, part tasks.Signature[P], want P) {
	t.Helper()
	got, err := tasks.ValueOf(limited(t), run, part)
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("value of the %s: got %v, %v, want %v", what, got, err, want)
	}
}

// failureOf checks that a part has no value.
func failureOf[P, O any](t *testing.T, run *tasks.AsyncResult[O], what string, part tasks.Signature[P], want string) {
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
			nested := tasks.Group(tasks.GroupOf([]tasks.Signature[int]{ID.S(1), ID.S(2)}, tasks.AtMost(1)), tasks.Each([]int{5, 6}, ID))
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
			raw, err := tasks.NodeValue[json.RawMessage](ctx, w.client, run.ID(), n.ID)
			if err != nil || !json.Valid(raw) {
				t.Errorf("value of %s %s: got %s, %v", n.ID, n.Task, raw, err)
			}
		}
		if got, err := tasks.NodeValue[int](ctx, w.client, run.ID(), "1.1"); err != nil || got != 6 {
			t.Errorf("value of a member of the map: got %v, %v, want 6", got, err)
		}
		for node, want := range map[string]string{"99": "no node 99", "0:99": "no node", "2:0": "no node", "1.7": "2 members", "0.0": "no node", "x": "expected an index", "3": "did not run"} {
			if _, err := tasks.NodeValue[int](ctx, w.client, run.ID(), node); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("value of node %s: got %v, want an error with %q", node, err, want)
			}
		}
		if _, err := tasks.NodeValue[[]int](ctx, w.client, run.ID(), "2"); err == nil || !strings.Contains(err.Error(), "is not a []int") {
			t.Errorf("value of another type: got %v", err)
		}
		if _, err := tasks.NodeValue[error](ctx, w.client, run.ID(), "2"); err == nil || !strings.Contains(err.Error(), "is not a error") {
			t.Errorf("value of an interface type: got %v", err)
		}
		if _, err := tasks.NodeValue[int](ctx, w.client, "nowhere", "0"); !errors.Is(err, tasks.ErrUnknown) {
			t.Errorf("value in an unknown workflow: got %v, want %v", err, tasks.ErrUnknown)
		}
		if got, err := send(t, w, WaitsForNode.S(run.ID())); err != nil || !strings.Contains(got, tasks.ErrWaitInTask.Error()) {
			t.Errorf("value in a handler: got %q, %v, want %v", got, err, tasks.ErrWaitInTask)
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
			"Attach":     tasks.New[*tasks.AsyncResult[int], int]("t.result").S(run),
			"keep its":   tasks.New[[]tasks.AsyncResult[int], int]("t.results").S([]tasks.AsyncResult[int]{*run}),
			"send it":    tasks.Chord(tasks.Each([]tasks.Signature[int]{ID.S(1)}, tasks.New[tasks.Signature[int], int]("t.signature")), Sum),
		} {
			if _, err := s.Send(ctx, w.client); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("got %v, want an error with %q", err, want)
			}
		}
		if err := json.Unmarshal([]byte("{}"), &tasks.Signature[int]{}); err == nil {
			t.Error("a Signature was made from JSON")
		}
		if err := json.Unmarshal([]byte("{}"), &tasks.AsyncResult[int]{}); err == nil {
			t.Error("an AsyncResult was made from JSON")
		}
	})
}

// An alias is resolved only within the plan of its node: others could form a cycle.
func TestDamagedAliasIsAnError(t *testing.T) {
	t.Parallel()
	inWorlds(t, func(t *testing.T, w *world) {
		ctx := limited(t)
		rdb := w.client.Redis()
		run := sent(t, w, Range.S(3))
		ended(t, w, run.ID())
		for _, alias := range []string{"=0", "=1", "=0:0", "=x"} {
			testutil.Ok(t, rdb.HSet(ctx, flowKey(t, rdb, run.ID()), "0", "S|1|0|0|w|"+alias).Err())
			if got, err := run.Wait(ctx); err == nil {
				t.Errorf("Wait with the alias %s: got %v, want an error", alias, got)
			}
			if got, _, err := tasks.Members(ctx, run); err == nil {
				t.Errorf("Members with the alias %s: got %v, want an error", alias, got)
			}
			if got, err := tasks.NodeValue[[]int](ctx, w.client, run.ID(), "0"); err == nil {
				t.Errorf("NodeValue with the alias %s: got %v, want an error", alias, got)
			}
		}
	})
}
