package workqueue_test

import (
	"errors"
	"slices"
	"testing"

	"muster/internal/testutil"
	"muster/tasks/redistest"
	"muster/tasks/workqueue"
)

// Each failure and each amendment is stored as an ending, once; a success is not.
func TestEndingsAreKeptOnce(t *testing.T) {
	t.Parallel()
	k := &kit{workqueue.New(redistest.New(t), "endings", workqueue.Config{MaxAttempts: 1, KeepEndings: true, Logger: quiet}), t, nil}
	k.enqueue("done", "settled", "retried", "expired")
	k.settle(k.leaseOne("w"), workqueue.Done())
	settled := k.leaseOne("w")
	for range 2 {
		k.settle(settled, workqueue.Failed(errors.New("no")))
	}
	k.retry(k.leaseOne("w"), 0)
	k.leaseOne("gone")
	if _, err := k.ExpireWorker(t.Context(), "gone"); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		testutil.Ok(t, k.Amend(t.Context(), "settled", workqueue.StateError, workqueue.Skipped("by hand")))
	}
	var got []string
	for seq := ""; ; {
		endings, err := k.Endings(t.Context(), seq, 3)
		testutil.Ok(t, err)
		if len(endings) == 0 {
			break
		}
		for _, e := range endings {
			got, seq = append(got, e.Item+" "+string(e.State)), e.Seq
		}
	}
	if want := []string{"settled error", "retried error", "expired error", "settled skipped"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}
