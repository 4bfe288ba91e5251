package tasks_test

import (
	"errors"
	"slices"
	"testing"

	"muster/tasks"
	"muster/tasks/tasktype"
)

// Members come one by one while others still run, failures among them, and the sequence ends with the last.
func TestMembersAsCompleted(t *testing.T) {
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
