package tasks_test

import (
	"strings"
	"testing"

	"muster/internal/testutil"
	"muster/tasks"
	"muster/tasks/tasktype"
)

// The first failure of a fail-fast group ends its other members, in whatever they are at.
func TestFirstFailureEndsAFailFastGroup(t *testing.T) {
	t.Parallel()
	held := tasks.New[int, int]("t.hold")
	fast := func(ss ...tasks.Signature[int]) tasks.Signature[[]int] { return tasks.GroupOf(ss, tasks.FailFast()) }
	cases := []struct {
		name string
		s    func() tasks.Signature[[]int]
		why  string
	}{
		{"a map that runs", func() tasks.Signature[[]int] {
			return fast(Fail.S(1), tasks.Chord(tasks.Map(Range.S(3), held), Sum))
		}, "E1"},
		{"a plan that runs", func() tasks.Signature[[]int] { return fast(Fail.S(1), HoldPlan.S(2)) }, "E1"},
		{"a member that waits for a slot", func() tasks.Signature[[]int] {
			return tasks.GroupOf([]tasks.Signature[int]{held.S(1), Fail.S(1), held.S(2), held.S(3)}, tasks.AtMost(2), tasks.FailFast())
		}, "E1"},
	}
	inWorlds(t, func(t *testing.T, w *world) {
		for _, c := range cases {
			t.Run(c.name, func(t *testing.T) {
				_, err := send(t, w, tasks.OnError(c.s(), Err))
				wantFailure(t, err, c.why)
				for _, f := range w.failures() {
					if f.Code == tasktype.CodeRevoked {
						t.Errorf("errback of a revoked task: got %+v, want none", f)
					}
				}
			})
		}
		t.Run("nodes that others need continue", func(t *testing.T) {
			x := Hold.S("shared")
			g := tasks.Settle(tasks.GroupOf([]tasks.Signature[int]{Fail.S(1), tasks.Chain(x, Inc)}, tasks.FailFast()))
			run := sent(t, w, tasks.Join(x, tasks.Chord(g, Settled)))
			testutil.Eventually(t, "the chain after it is revoked", func() bool {
				nodes, err := w.client.Nodes(t.Context(), run.ID())
				return err == nil && len(nodes) > 2 && strings.Contains(tree(t, w, run.ID()), "t.inc REVOKED")
			})
			w.open("shared")
			if got, err := run.Wait(limited(t)); err != nil || got.Second != "E1 revoked" {
				t.Fatalf("got %+v, %v, want E1 revoked second", got, err)
			}
			ended(t, w, run.ID())
		})
	})
}
