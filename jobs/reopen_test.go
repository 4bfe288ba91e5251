package jobs_test

import (
	"errors"
	"slices"
	"testing"
	"time"

	"muster/internal/testutil"
	"muster/jobs"
)

// endedWithFailures creates a job whose items a and b fail and whose item c is integrated.
func (w *world) endedWithFailures() jobs.Job {
	w.t.Helper()
	j := w.create(jobs.Request{})
	w.emit("a", "b", "c")
	for range 2 {
		testutil.Ok(w.t, w.Fail(w.ctx, w.take("validator", "v"), permanent{errors.New("no")}, 0, true))
	}
	w.complete(w.take("validator", "v"), jobs.Answer{})
	return w.until(j.ID, jobs.Completed)
}

func TestRetryReopensAnEndedJob(t *testing.T) {
	both(t, nil, func(t *testing.T, w *world) {
		j := w.endedWithFailures()
		if n, err := w.Retry(w.ctx, j.ID, "a", "c", "unknown"); n != 1 || err != nil {
			t.Fatalf("retry of a failed and a finished item: got %d, %v, want 1", n, err)
		}
		open := w.until(j.ID, jobs.Processing)
		if !open.CompletedAt.IsZero() || open.Items != (jobs.Counts{Total: 3, Pending: 1, Integrated: 1, Failed: 1}) || open.Stages[1].Status != jobs.StageProcessing {
			t.Errorf("the reopened job: got %+v", open)
		}
		w.complete(w.take("validator", "v"), jobs.Answer{})
		if got, want := w.until(j.ID, jobs.Completed).Items, (jobs.Counts{Total: 3, Integrated: 2, Failed: 1}); got != want {
			t.Errorf("items: got %+v, want %+v", got, want)
		}
		if n, err := w.Retry(w.ctx, j.ID); n != 1 || err != nil {
			t.Fatalf("retry of the rest: got %d, %v, want 1", n, err)
		}
		w.complete(w.take("validator", "v"), jobs.Answer{})
		w.until(j.ID, jobs.Completed)
		if n, err := w.Retry(w.ctx, j.ID); n != 0 || err != nil {
			t.Errorf("retry without failures: got %d, %v, want 0", n, err)
		}
		if got, err := w.Get(w.ctx, j.ID); err != nil || got.Status != jobs.Completed {
			t.Errorf("after a retry without failures: got %s, %v, want completed", got.Status, err)
		}
		if n := len(slices.DeleteFunc(w.types(j.ID), func(s string) bool { return s != "job.reopened" })); n != 2 {
			t.Errorf("events: got %v, want job.reopened twice", w.types(j.ID))
		}
		w.wantItems("after all", map[jobs.ItemStatus]int64{jobs.ItemIntegrated: 3})
	})
}

func TestRetryReopensAJobWhoseStageFailed(t *testing.T) {
	both(t, nil, func(t *testing.T, w *world) {
		j := w.create(jobs.Request{Pipeline: "once"})
		testutil.Ok(t, w.Fail(w.ctx, w.take("creator", "c"), errors.New("no"), 0, true))
		w.until(j.ID, jobs.Failed)
		next := w.create(jobs.Request{Pipeline: "once", After: []string{j.ID}})
		w.until(next.ID, jobs.Cancelled)
		if n, err := w.Retry(w.ctx, j.ID); n != 1 || err != nil {
			t.Fatalf("got %d, %v, want 1", n, err)
		}
		if got := w.until(j.ID, jobs.Processing); got.ErrorMessage != "" || got.ErrorDetails != nil {
			t.Errorf("the reopened job has the error %q %s", got.ErrorMessage, got.ErrorDetails)
		}
		w.complete(w.take("creator", "c"), jobs.Answer{})
		w.until(j.ID, jobs.Completed)
		if got, err := w.Get(w.ctx, next.ID); err != nil || got.Status != jobs.Cancelled {
			t.Errorf("the dependent job: got %s, %v, want cancelled", got.Status, err)
		}
		if _, err := w.Retry(w.ctx, next.ID); !errors.Is(err, jobs.ErrTerminal) {
			t.Errorf("retry of a cancelled job: got %v, want %v", err, jobs.ErrTerminal)
		}
	})
}

func TestPausedJobGivesNoWork(t *testing.T) {
	both(t, func(c *jobs.Config) { c.StuckAfter = time.Second }, func(t *testing.T, w *world) {
		j := w.create(jobs.Request{})
		held := w.take("creator", "c")
		w.add(held, "a")
		if got, err := w.Pause(w.ctx, j.ID); err != nil || !got.Paused || got.Waiting == "" {
			t.Fatalf("pause: got %+v, %v", got, err)
		}
		w.add(held, "b")
		w.complete(held, jobs.Answer{})
		testutil.Ok(t, w.Sweep(w.ctx))
		if work, _, err := w.Take(w.ctx, "validator", "v", 5); err != nil || len(work) > 0 {
			t.Errorf("work of a paused job: got %+v, %v", work, err)
		}
		if got, err := w.Resume(w.ctx, j.ID); err != nil || got.Paused {
			t.Fatalf("resume: got %+v, %v", got, err)
		}
		for range 2 {
			w.complete(w.take("validator", "v"), jobs.Answer{})
		}
		w.until(j.ID, jobs.Completed)
		if _, err := w.Pause(w.ctx, j.ID); !errors.Is(err, jobs.ErrTerminal) {
			t.Errorf("pause of an ended job: got %v, want %v", err, jobs.ErrTerminal)
		}

		later := w.create(jobs.Request{At: time.Now().Add(time.Hour)})
		testutil.Must(w.Pause(w.ctx, later.ID))(t)
		if err := w.client.Redis().HSet(w.ctx, "muster:{jobs}:j:"+later.ID, "at", 1).Err(); err != nil { // its time has come
			t.Fatal(err)
		}
		testutil.Ok(t, w.Sweep(w.ctx))
		if got, err := w.Get(w.ctx, later.ID); err != nil || got.Status != jobs.Created {
			t.Errorf("a paused job at its time: got %s, %v, want created", got.Status, err)
		}
		testutil.Must(w.Resume(w.ctx, later.ID))(t)
		w.until(later.ID, jobs.Processing)
	})
}
