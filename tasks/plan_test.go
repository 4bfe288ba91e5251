package tasks_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"testing"

	"muster/tasks"
	"muster/tasks/redistest"
)

func TestPlans(t *testing.T) {
	t.Parallel()
	runRows(t, planRows)
}

// planRows are the values of plans.
var planRows = []row{
	value("replaced task", func() tasks.Signature[int] { return Replace.S(AB{3, 4}) }, 7),
	fails("empty plan", func() tasks.Signature[int] { return BadPlan.S(1) }, "zero Signature"),
	value("replaced members keep their places", func() tasks.Signature[[]int] {
		return tasks.Group(Replace.S(AB{1, 1}), ID.S(5), Replace.S(AB{2, 2}))
	}, []int{2, 5, 4}),
	value("replaced body", func() tasks.Signature[[]int] {
		return tasks.Chord(tasks.Group(ID.S(41)), ToAll)
	}, []int{42}),
	value("replaced by groups, in order", func() tasks.Signature[[][]int] {
		return tasks.Each(slices.Repeat([][]int{{2, 1}}, 20), ToAll)
	}, slices.Repeat([][]int{{3, 2}}, 20)),
	value("plan in a header", func() tasks.Signature[int] {
		return tasks.Chord(tasks.Group(Replace.S(AB{1, 5}), ID.S(5)), Sum)
	}, 11),
	fails("failing plan in a header", func() tasks.Signature[int] {
		return tasks.Chord(tasks.Group(FailTo.S(3), ID.S(5)), Sum)
	}, "E3"),
	value("plans within plans", func() tasks.Signature[int] { return Deep.S(5) }, 47),
	value("plans first, in the middle and last", func() tasks.Signature[[]int] {
		return tasks.Group(Replace.S(AB{1, 1}), ID.S(5), Replace.S(AB{2, 2}), ID.S(6), Replace.S(AB{3, 3}))
	}, []int{2, 5, 4, 6, 6}),
	value("plans in a header", func() tasks.Signature[string] {
		return tasks.Chord(tasks.Group(Replace.S(AB{1, 1}), ID.S(5), Replace.S(AB{2, 2})), Only)
	}, "[2 5 4]"),
	value("plans at the head, in the middle and at the end of a chain", func() tasks.Signature[int] {
		return tasks.Chain(tasks.Chain(tasks.Chain(Replace.S(AB{1, 1}), Deep), Inc), Deep)
	}, 42+1+42+2),
	value("plan that is a group in a header", func() tasks.Signature[string] {
		return tasks.Chain(tasks.Group(tasks.Group(ID.S(5)), ToAll.S([]int{0, 1, 2})), Show[[][]int]())
	}, "[[5],[1,2,3]]"),
	value("plan that is a chord in a header", func() tasks.Signature[string] {
		return tasks.Chord(tasks.Group(ChordPlan.S(3), ID.S(5)), Only)
	}, "[6 5]"),
	value("plan inside a rescue", func() tasks.Signature[int] { return Fail.S(1).Rescue(InsteadPlan) }, 8),
	value("plan that fails, rescued", func() tasks.Signature[int] { return FailTo.S(1).Rescue(Instead) }, -1),
	value("plan over each element of a map", func() tasks.Signature[[]int] {
		return tasks.Map(tasks.Each([]AB{{1, 1}, {2, 2}}, New2("t.ab")), Replace)
	}, []int{2, 4}),
}

func TestRunsWithinPlans(t *testing.T) {
	t.Parallel()
	runStories(t, planStories)
}

// planStories check more than one value.
var planStories = []story{
	{"order of plans in plans", func(t *testing.T, w *world) {
		if _, err := send(t, w, tasks.Chain(Nested.S("A"), Echo1)); err != nil {
			t.Fatal(err)
		}
		if log := w.noted("log"); !slices.Equal(log, []int{'a', 'b', 'c', 'C', 'B', 'A'}) {
			t.Fatalf("log %v", log)
		}
	}},
	{"the info of a run survives retries and plans", func(t *testing.T, w *world) {
		got, err := send(t, w, tasks.Chain(Keys.S("x"), Show[[]string]()))
		var keys []string
		if err != nil || json.Unmarshal([]byte(got), &keys) != nil || len(keys) != 3 || keys[0] != keys[1] || keys[1] != keys[2] {
			t.Fatalf("got %s, %v", got, err)
		}
	}},
}

// Plans that return plans end, hundreds deep, and with IDs of the maximum length.
func TestDeepPlansEnd(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ depth, letters int }{{300, 1}, {100, 100}, {50, 24}} {
		t.Run(fmt.Sprint(c.depth, " deep with an id of ", c.letters), func(t *testing.T) {
			t.Parallel()
			client := tasks.NewClient(redistest.New(t))
			t.Cleanup(func() { _ = client.Close() })
			down, leaf := tasks.New[int, int]("deep.down"), tasks.New[int, int]("deep.leaf")
			mux := tasks.NewMux()
			tasks.Handle(mux, leaf, func(context.Context, int) (int, error) { return c.depth, nil })
			tasks.HandlePlan(mux, down, func(_ context.Context, n int) (tasks.Signature[int], error) {
				if n == 0 {
					return leaf.S(0), nil
				}
				return down.S(n - 1), nil
			})
			worker, err := tasks.NewWorker(client, mux, tasks.WorkerConfig{})
			if err != nil {
				t.Fatal(err)
			}
			during(t, worker.Run)
			id := make([]byte, c.letters)
			for i := range id {
				id[i] = 'x'
			}
			run, err := down.S(c.depth-1).Send(t.Context(), client, tasks.ID(string(id)))
			if err != nil {
				t.Fatal(err)
			}
			if got, err := run.Wait(limited(t)); err != nil || got != c.depth {
				t.Errorf("got %v, %v, want %d", got, err, c.depth)
			}
			for p, err := range run.Watch(limited(t)) {
				if err != nil {
					t.Errorf("it does not end: %+v, %v", p, err)
				}
			}
		})
	}
}
