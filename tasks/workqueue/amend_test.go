package workqueue_test

import (
	"errors"
	"testing"

	"muster/internal/testutil"
	"muster/tasks/workqueue"
)

func (k *kit) amend(id string, from workqueue.State, o workqueue.Outcome) {
	k.t.Helper()
	testutil.Ok(k.t, k.Amend(k.t.Context(), id, from, o))
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
