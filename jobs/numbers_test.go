package jobs_test

import (
	"fmt"
	"testing"

	"muster/internal/testutil"
	"muster/jobs"
)

// numbers returns the counters after a sweep.
func (w *world) numbers() jobs.Numbers {
	w.t.Helper()
	testutil.Ok(w.t, w.Sweep(w.ctx))
	n := testutil.Must(w.Numbers(w.ctx))(w.t)
	return n
}

func (w *world) wantItems(when string, want map[jobs.ItemStatus]int64) {
	w.t.Helper()
	got := w.numbers().Items
	for _, state := range jobs.ItemStatuses {
		if got[state] != want[state] {
			w.t.Errorf("%s: got %v, want %v", when, got, want)
			return
		}
	}
}

func TestItemsOfAllJobsAreCounted(t *testing.T) {
	both(t, nil, func(t *testing.T, w *world) {
		const created = 5
		var ids []string
		for i := range created {
			ids = append(ids, w.create(jobs.Request{Prompt: fmt.Sprint(i)}).ID)
		}
		for range created {
			w.emit("a", "b", "c")
		}
		w.wantItems("all wait", map[jobs.ItemStatus]int64{jobs.ItemPending: 15})
		first := w.take("validator", "v")
		w.complete(first, jobs.Answer{Verdict: "accept"})
		w.complete(w.take("validator", "v"), jobs.Answer{Verdict: "reject", Reason: "old"})
		w.take("validator", "v")
		w.wantItems("some have ended", map[jobs.ItemStatus]int64{jobs.ItemPending: 12, jobs.ItemValidating: 1, jobs.ItemIntegrated: 1, jobs.ItemRejected: 1})
		w.wantItems("again", map[jobs.ItemStatus]int64{jobs.ItemPending: 12, jobs.ItemValidating: 1, jobs.ItemIntegrated: 1, jobs.ItemRejected: 1})

		// The numbers of a job that has ended stay, until it is deleted.
		for _, id := range ids {
			if _, _, err := w.Cancel(w.ctx, id, false); err != nil {
				t.Fatal(err)
			}
		}
		n, err := w.Numbers(w.ctx) // without a sweep
		if err != nil || n.Items[jobs.ItemPending] != 13 || n.Items[jobs.ItemIntegrated] != 1 {
			t.Errorf("all jobs have ended: got %v, %v, want 13 pending and 1 integrated", n.Items, err)
		}
		for _, id := range ids {
			testutil.Ok(t, w.Delete(w.ctx, id))
		}
		w.wantItems("all jobs are deleted", nil)
	})
}
