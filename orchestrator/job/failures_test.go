package job_test

import (
	"fmt"
	"testing"

	"muster/internal/testutil"
	"muster/orchestrator/job"
)

// Items that failed are listed without a look at the others, and those that wait for a decision over all jobs.
func TestFailuresAndReviews(t *testing.T) {
	both(t, nil, func(w *world) {
		fail := func(id string, n int) {
			for i := range n {
				work := w.take("validator", "v1")
				if work.JobID != id {
					t.Fatalf("got work of job %s, want of %s", work.JobID, id)
				}
				if err := w.Fail(w.ctx, work, fmt.Errorf("unclear %d", i), 0, true); err != nil {
					t.Fatal(err)
				}
			}
		}
		first := w.create(job.Request{Pipeline: "review"})
		w.emit("a", "b", "c")
		fail(first.ID, 2)
		second := w.create(job.Request{Pipeline: "review", Prompt: "another", Priority: 100})
		w.emit("d")
		fail(second.ID, 1)

		got, err := w.Reviews(w.ctx, 10)
		if err != nil || len(got.Items) != 3 || got.More || got.Items[0].JobID != first.ID || got.Items[2].Key != "d" || got.Items[0].Status != job.ItemReview {
			t.Fatalf("got %+v, %v, want two items of the first job and one of the second", got, err)
		}
		if got, err := w.Reviews(w.ctx, 1); err != nil || len(got.Items) != 1 || !got.More {
			t.Errorf("got %+v, %v, want one item and more", got, err)
		}
		page, next, err := w.Failures(w.ctx, first.ID, job.ItemReview, 0, 1)
		if err != nil || len(page) != 1 || next != 1 {
			t.Errorf("got %+v, %d, %v, want one item, and that others follow", page, next, err)
		}
		if page, next, err = w.Failures(w.ctx, first.ID, job.ItemFailed, 0, 10); err != nil || len(page) != 0 || next != 0 {
			t.Errorf("got %+v, %d, %v, want none: they wait for a decision", page, next, err)
		}
		errs, err := w.LastErrors(w.ctx, first.ID, 10)
		if err != nil || len(errs) != 2 || errs[0].At.IsZero() {
			t.Fatalf("got %+v, %v, want two errors", errs, err)
		}
		if texts := errs[0].Error + errs[1].Error; texts != "unclear 1unclear 0" && texts != "unclear 0unclear 1" { // of one ms
			t.Errorf("got %q", texts)
		}

		// A decision removes an item, the end of a job all of them.
		if _, err := w.Decide(w.ctx, second.ID, "d", job.Decision{Accept: true}); err != nil {
			t.Fatal(err)
		}
		w.until(second.ID, job.Completed)
		if _, err := w.Cancel(w.ctx, first.ID, false); err != nil {
			t.Fatal(err)
		}
		w.until(first.ID, job.Cancelled)
		if got, err := w.Reviews(w.ctx, 10); err != nil || len(got.Items) != 0 {
			t.Errorf("got %+v, %v, want none", got, err)
		}
		testutil.Eventually(t, "jobs that have ended leave the list", func() bool {
			return w.client.Redis().ZCard(w.ctx, "muster:{jobs}:reviews").Val() == 0
		})
	})
}

// A sweep lists the jobs whose items wait, if that was missed, and no others.
func TestSweepListsReviews(t *testing.T) {
	both(t, nil, func(w *world) {
		j := w.create(job.Request{Pipeline: "review"})
		w.emit("a", "b")
		if err := w.Fail(w.ctx, w.take("validator", "v1"), fmt.Errorf("unclear"), 0, true); err != nil {
			t.Fatal(err)
		}
		list := func() []string {
			if err := w.Sweep(w.ctx); err != nil {
				t.Fatal(err)
			}
			return w.client.Redis().ZRange(w.ctx, "muster:{jobs}:reviews", 0, -1).Val()
		}
		if err := w.client.Redis().Del(w.ctx, "muster:{jobs}:reviews").Err(); err != nil {
			t.Fatal(err)
		}
		if got := list(); len(got) != 1 || got[0] != j.ID {
			t.Errorf("got %v, want the job", got)
		}
		got, err := w.Reviews(w.ctx, 10)
		if err != nil || len(got.Items) != 1 {
			t.Fatalf("got %+v, %v, want an item", got, err)
		}
		if _, err := w.Decide(w.ctx, j.ID, got.Items[0].Key, job.Decision{Accept: true}); err != nil {
			t.Fatal(err)
		}
		if got := list(); len(got) != 0 {
			t.Errorf("got %v, want none", got)
		}
	})
}
