package tasks_test

import (
	"slices"
	"strings"
	"testing"

	"muster/tasks"
	"muster/tasks/redistest"
)

// Members of a limited group that rescue or settle shared parts take no slot for that, wait for none, and have the
// same results as without the limit.
func TestSharedPartsTakeNoPlace(t *testing.T) {
	t.Parallel()
	inWorlds(t, func(t *testing.T, w *world) {
		good, bad := ID.S(1), Fail.S(1)
		rescued := bad.Rescue(Instead)
		settled := tasks.Chord(tasks.Settle(tasks.Group(bad, ID.S(3))), Settled)
		for _, limit := range []tasks.GroupOption{tasks.AtMost(2), tasks.AtMost(1)} {
			got, err := send(t, w, tasks.GroupOf([]tasks.Signature[int]{good, good.Rescue(Instead).Rescue(Instead), ID.S(2)}, limit))
			if err != nil || !slices.Equal(got, []int{1, 1, 2}) {
				t.Errorf("rescue of a success: got %v, %v, want [1 1 2]", got, err)
			}
			saved, err := send(t, w, tasks.Join(rescued, tasks.GroupOf([]tasks.Signature[int]{tasks.Chain(rescued, Inc), ID.S(2), ID.S(3)}, limit)))
			if err != nil || saved.Second[0] != saved.First+1 || saved.Second[1] != 2 {
				t.Errorf("rescue of a failure: got %v, %v, want First+1 and 2 first", saved, err)
			}
			both, err := send(t, w, tasks.Join(rescued, tasks.GroupOf([]tasks.Signature[string]{settled, Say.S("a"), Say.S("b")}, limit)))
			if err != nil || !strings.HasSuffix(both.Second[0], " 3") || both.Second[2] != "b" {
				t.Errorf("settled with a failure: got %v, %v, want … 3 and b", both, err)
			}
		}
	})
}

// A member that ends before it had its place does not keep others from theirs.
func TestRevokedMemberKeepsNoPlace(t *testing.T) {
	t.Parallel()
	inWorlds(t, func(t *testing.T, w *world) {
		gate := Hold.S("gate")
		first := tasks.Chain(ID.S(1), Inc)
		run := sent(t, w, tasks.Settle(tasks.GroupOf([]tasks.Signature[int]{gate, first, tasks.Chain(ID.S(2), Inc), tasks.Chain(ID.S(3), Inc)}, tasks.AtMost(1))))
		for _, n := range nodes(t, w, run.ID()) {
			if n.Task == "t.id" {
				if err := w.client.RevokeNode(t.Context(), run.ID(), n.ID); err != nil {
					t.Fatal(err)
				}
				break
			}
		}
		w.open("gate")
		out, err := run.Wait(limited(t))
		if err != nil || len(out) != 4 || out[1].Err == nil || out[2].Value != 3 || out[3].Value != 4 {
			t.Fatalf("got %+v, %v, want a failure, 3 and 4 from the second on", out, err)
		}
		ended(t, w, run.ID())
	})
}

// The second part of After cannot rescue a node that After waits for.
func TestAfterRefusesToRescueWhatItWaitsFor(t *testing.T) {
	t.Parallel()
	x := ID.S(1)
	_, err := tasks.After(x, x.Rescue(Instead)).Send(t.Context(), tasks.NewClient(redistest.Mini(t)))
	if err == nil || !strings.Contains(err.Error(), "t.instead") || !strings.Contains(err.Error(), "move Rescue into the first part") {
		t.Errorf("got %v, want an error that names t.instead and the remedy", err)
	}
}
