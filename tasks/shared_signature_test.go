package tasks_test

import (
	"slices"
	"testing"
	"time"

	"muster/internal/testutil"
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

// A revoked node stays revoked, even if it becomes ready later, and keeps no place of its group.
func TestRevokedNodeIsNotRevived(t *testing.T) {
	t.Parallel()
	inWorlds(t, func(t *testing.T, w *world) {
		ms := []tasks.Signature[int]{Hold.S("gate"), tasks.Chain(ID.S(1), Inc)}
		for i := range 3 {
			ms = append(ms, Echo.S(Mark{"ran", i}, tasks.In(20*time.Millisecond)))
		}
		run := sent(t, w, tasks.Settle(tasks.GroupOf(append(ms, tasks.Chain(ID.S(3), Inc)), tasks.AtMost(1))))
		revoked := map[string]bool{}
		for _, n := range nodes(t, w, run.ID()) {
			if (n.Task == "t.echo" || n.Task == "t.id") && !revoked[n.Task] {
				revoked[n.Task] = true
				testutil.Ok(t, w.client.RevokeNode(t.Context(), run.ID(), n.ID))
			}
		}
		w.open("gate")
		out, err := run.Wait(limited(t))
		if err != nil || len(out) != 6 || out[1].Err == nil || out[2].Err == nil || out[3].Value != 1 || out[4].Value != 2 || out[5].Value != 4 {
			t.Fatalf("got %+v, %v, want two failures, 1, 2 and 4 from the second on", out, err)
		}
		ended(t, w, run.ID())
		if ran := w.noted("ran"); !slices.Equal(ran, []int{1, 2}) {
			t.Fatalf("ran %v, want 1 and 2", ran)
		}
	})
}
