package tasks_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"muster/tasks"
)

// One signature used in several places of a send is one run, whatever options are put around it.
func TestUsedTwiceRunsOnce(t *testing.T) {
	t.Parallel()
	x := func(key string) tasks.Signature[int] { return Echo.S(Mark{key, 5}) }
	cases := []struct {
		name string
		s    func(key string) tasks.Signature[int]
		opts []tasks.SendOption
		want int
	}{
		{"both sides of a join", func(k string) tasks.Signature[int] {
			x := x(k)
			return tasks.Chain(tasks.Join(tasks.Chain(x, Inc), tasks.Group(x, x)), PairSum)
		}, nil, 16},
		{"inside and outside of a limited group", func(k string) tasks.Signature[int] {
			x := x(k)
			g := tasks.GroupOf([]tasks.Signature[int]{tasks.Chain(x, Inc), tasks.Chain(x, Double)}, tasks.AtMost(1))
			return tasks.Chain(tasks.Join(x, g), PairSum)
		}, nil, 21},
		{"twice in a group with options", func(k string) tasks.Signature[int] {
			x := x(k)
			return tasks.Chord(tasks.Group(x, x, x).With(tasks.Priority(2)), Sum)
		}, nil, 15},
		{"first and later steps of a send with options", func(k string) tasks.Signature[int] {
			x := x(k)
			return tasks.Chord(tasks.Group(x, tasks.After(ID.S(1), x), tasks.After(x, tasks.Chain(x, Inc))), Sum)
		}, []tasks.SendOption{tasks.MaxRetry(1), tasks.Priority(1)}, 16},
		{"after itself", func(k string) tasks.Signature[int] {
			x := x(k)
			return tasks.After(x, x)
		}, nil, 5},
		{"a diamond of chords", func(k string) tasks.Signature[int] {
			g := tasks.Group(x(k), ID.S(1))
			return tasks.Chord(tasks.Group(tasks.Chord(g, Sum), tasks.Chord(g, Sum), tasks.Chord(tasks.Map(g, Inc), Sum)), Sum)
		}, nil, 20},
	}
	inWorlds(t, func(t *testing.T, w *world) {
		for _, c := range cases {
			t.Run(c.name, func(t *testing.T) {
				got, err := send(t, w, c.s(c.name), c.opts...)
				if ran := w.noted(c.name); err != nil || got != c.want || len(ran) != 1 {
					t.Fatalf("got %v, %v, want %v; ran %d times", got, err, c.want, len(ran))
				}
			})
		}
	})
}

// A revoked node stays revoked, even if it becomes ready later, and its slot is used by others.
func TestRevokedNodeIsNotRevived(t *testing.T) {
	t.Parallel()
	inWorlds(t, func(t *testing.T, w *world) {
		gate := Hold.S("gate")
		var ms []tasks.Signature[int]
		for i := range 4 {
			ms = append(ms, Echo.S(Mark{"ran", i}, tasks.In(20*time.Millisecond)))
		}
		run, err := tasks.Settle(tasks.After(gate, tasks.GroupOf(ms, tasks.AtMost(1)))).Send(t.Context(), w.client)
		if err != nil {
			t.Fatal(err)
		}
		nodes, err := w.client.Nodes(t.Context(), run.ID())
		if err != nil {
			t.Fatal(err)
		}
		revoked := 0
		for _, n := range nodes {
			if n.Task == "t.echo" && revoked < 2 {
				if err := w.client.RevokeNode(t.Context(), run.ID(), n.ID); err != nil {
					t.Fatal(err)
				}
				revoked++
			}
		}
		w.open("gate")
		out, err := run.Wait(limited(t))
		if err != nil || len(out) != 4 || out[0].Err == nil || out[1].Err == nil || out[2].Value != 2 || out[3].Value != 3 {
			t.Fatalf("got %+v, %v", out, err)
		}
		ended(t, w, run.ID())
		if ran := w.noted("ran"); !slices.Equal(ran, []int{2, 3}) {
			t.Fatalf("ran %v", ran)
		}
	})
}

// Groups that let few members run at once do not wait for each other's places, however their members
// depend on each other.
func TestLimitedGroupsDoNotBlockEachOther(t *testing.T) {
	t.Parallel()
	inWorlds(t, func(t *testing.T, w *world) {
		one := tasks.AtMost(1)
		x, z := ID.S(1), ID.S(2)
		crossed := tasks.Join(
			tasks.GroupOf([]tasks.Signature[int]{tasks.Chain(x, Inc), tasks.Chain(z, Double)}, one),
			tasks.GroupOf([]tasks.Signature[int]{tasks.Chain(z, Inc), tasks.Chain(x, Double)}, one))
		if got, err := send(t, w, crossed); err != nil || fmt.Sprint(got) != "{[2 4] [3 2]}" {
			t.Errorf("crossed: got %v, %v", got, err)
		}
		d, b := Inc.S(10), Inc.S(20)
		members := tasks.Join(
			tasks.GroupOf([]tasks.Signature[int]{tasks.Chain(d, Inc), b}, one),
			tasks.GroupOf([]tasks.Signature[int]{tasks.Chain(b, Inc), d}, one))
		if got, err := send(t, w, members); err != nil || fmt.Sprint(got) != "{[12 21] [22 11]}" {
			t.Errorf("members of each other: got %v, %v", got, err)
		}
		inner := tasks.GroupOf([]tasks.Signature[int]{tasks.Chain(x, Inc), tasks.Chain(z, Inc)}, one)
		nested := tasks.GroupOf([]tasks.Signature[int]{tasks.Chord(inner, Sum), tasks.Chain(x, Double), tasks.Chord(inner, Total)}, one)
		if got, err := send(t, w, nested); err != nil || fmt.Sprint(got) != "[5 2 5]" {
			t.Errorf("nested: got %v, %v", got, err)
		}
	})
}
