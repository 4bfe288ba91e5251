package workqueue_test

import (
	"errors"
	"testing"

	"muster/tasks/workqueue"
)

func (k *kit) amend(id string, from workqueue.State, o workqueue.Outcome) {
	k.t.Helper()
	if err := k.Amend(k.t.Context(), id, from, o); err != nil {
		k.t.Fatal(err)
	}
}

func TestAmendMovesBetweenTerminalStates(t *testing.T) {
	t.Parallel()
	every(t, byLane, func(k *kit) {
		k.add([]string{"h"}, "a")
		l := k.leaseOne("w")
		k.settle(l, workqueue.Failed(errors.New("why")).With([]byte("r")))
		steps := []struct {
			to                  workqueue.Outcome
			lanes, note, result string
			failed              int
		}{
			{workqueue.Done().With([]byte("r2")), "0 0 1 0 0", "", "r2", 0},
			{workqueue.Skipped("no"), "0 0 0 1 0", "no", "", 0},
			{workqueue.Skipped("not at all"), "0 0 0 1 0", "not at all", "", 0},
			{workqueue.Failed(errors.New("e")), "0 0 0 0 1", "e", "", 1},
			{workqueue.Failed(errors.New("f")).With([]byte{}), "0 0 0 0 1", "f", "", 1},
		}
		from := workqueue.StateError
		for _, s := range steps {
			for range 2 { // a repeated call succeeds
				k.amend("a", from, s.to)
				k.wantLanes(map[string]string{"h": s.lanes})
			}
			got := k.get("a")
			failed, err := k.Failed(k.t.Context(), 0, 9)
			if got.State != s.to.State || got.Note != s.note || string(got.Result) != s.result || (got.Result == nil) != (s.to.Result == nil) ||
				len(failed) != s.failed || err != nil {
				k.t.Fatalf("got %+v, %d failed, %v; want %+v", got, len(failed), err, s)
			}
			from = s.to.State
		}
		k.wantStats("0 0 0 0 1")
		k.amend("a", workqueue.StateError, workqueue.Done())
		if err := k.Settle(k.t.Context(), l, workqueue.Failed(errors.New("why"))); !errors.Is(err, workqueue.ErrLeaseLost) {
			k.t.Fatalf("the lease settles again: got %v, want %v", err, workqueue.ErrLeaseLost)
		}
	})
}

func TestAmendRejectsOtherStates(t *testing.T) {
	t.Parallel()
	every(t, workqueue.Config{MaxPayload: 100}, func(k *kit) {
		ctx := k.t.Context()
		k.enqueue("done", "held", "queued")
		k.settle(k.leaseOne("w"), workqueue.Done())
		k.leaseOne("w")
		for _, id := range []string{"done", "held", "queued", "unknown"} {
			err := k.Amend(ctx, id, workqueue.StateError, workqueue.Skipped("s"))
			if !errors.Is(err, workqueue.ErrNotInState) {
				k.t.Errorf("%s: got %v, want %v", id, err, workqueue.ErrNotInState)
			}
		}
		for what, err := range map[string]error{
			"from queued":  k.Amend(ctx, "done", workqueue.StateQueued, workqueue.Done()),
			"to queued":    k.Amend(ctx, "done", workqueue.StateDone, workqueue.Outcome{State: workqueue.StateQueued}),
			"outputs":      k.Amend(ctx, "done", workqueue.StateDone, workqueue.Skipped("s").With(nil, []byte("o"))),
			"large result": k.Amend(ctx, "done", workqueue.StateDone, workqueue.Skipped("s").With(make([]byte, 101))),
		} {
			if err == nil || errors.Is(err, workqueue.ErrNotInState) {
				k.t.Errorf("%s: got %v, want an error with the reason", what, err)
			}
		}
		k.wantStats("1 1 1 0 0")
		k.seal()
		if err := k.Amend(ctx, "done", workqueue.StateDone, workqueue.Skipped("s")); !errors.Is(err, workqueue.ErrSealed) {
			k.t.Errorf("in a sealed queue: got %v, want %v", err, workqueue.ErrSealed)
		}
		k.amend("done", workqueue.StateSkipped, workqueue.Done()) // it is so already
		k.wantStats("2 0 1 0 0")
	})
}
