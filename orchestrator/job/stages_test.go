package job_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"muster/orchestrator/job"
)

// A person can end a stage, whether its work waits or an agent holds it; the other stages continue.
func TestStageIsEndedByHand(t *testing.T) {
	both(t, nil, func(t *testing.T, w *world) {
		j := w.create(job.Request{})
		creator := w.take("creator", "c1")
		w.add(creator, "a", "b")
		w.complete(w.take("validator", "v1"), job.Answer{})
		got, err := w.CompleteStage(w.ctx, j.ID, "create", "")
		if err != nil || got.Stages[0].Status != job.StageCompleted || got.Stages[1].Status != job.StageProcessing || got.Items.Pending != 1 {
			t.Fatalf("a stage that an agent holds: %+v, %v", got, err)
		}
		if _, err := w.CompleteStage(w.ctx, j.ID, "create", "too late"); !errors.Is(err, job.ErrStageEnded) {
			t.Errorf("fail a completed stage: got %v, want %v", err, job.ErrStageEnded)
		}
		if err := w.Beat(w.ctx, creator); !errors.Is(err, job.ErrLeaseLost) {
			t.Errorf("its agent: got %v, want %v", err, job.ErrLeaseLost)
		}
		if _, err := w.CompleteStage(w.ctx, j.ID, "validate", ""); err != nil {
			t.Fatal(err)
		}
		done := w.until(j.ID, job.Completed)
		if want := (job.Counts{Total: 2, Integrated: 1, Rejected: 1}); done.Items != want {
			t.Errorf("items: got %+v, want %+v", done.Items, want)
		}
		if _, err := w.CompleteStage(w.ctx, j.ID, "create", ""); !errors.Is(err, job.ErrTerminal) {
			t.Errorf("a job that has ended: got %v, want %v", err, job.ErrTerminal)
		}

		j = w.create(job.Request{})
		w.until(j.ID, job.Processing)
		if _, err := w.CompleteStage(w.ctx, j.ID, "none", ""); !errors.As(err, new(*job.FieldError)) {
			t.Errorf("an unknown stage: %v", err)
		}
		got, err = w.CompleteStage(w.ctx, j.ID, "create", "the scan is unreadable")
		if err != nil || got.Status != job.Failed || !strings.Contains(got.ErrorMessage, "the scan is unreadable") || got.CompletedAt.IsZero() {
			t.Errorf("a stage that failed by hand: %+v, %v", got, err)
		}
		if st := got.Stages[0]; st.Status != job.StageFailed || st.Error != "the scan is unreadable" || got.Stages[1].Status != job.StagePending ||
			!strings.Contains(string(got.ErrorDetails), "the scan is unreadable") {
			t.Errorf("a stage that failed by hand: stages %+v, details %s", got.Stages, got.ErrorDetails)
		}
	})
}

// A stage whose states have no verdict accept needs a verdict.
func TestStageWithOwnVerdictsNeedsOne(t *testing.T) {
	both(t, nil, func(t *testing.T, w *world) {
		j := w.create(job.Request{Pipeline: "long"})
		w.emit("a")
		w.complete(w.take("enricher", "e"), job.Answer{})
		work := w.take("validator", "v")
		err := w.Complete(w.ctx, work, job.Answer{})
		if wrong, ok := errors.AsType[*job.FieldError](err); !ok || wrong.Field != "verdict" || wrong.Why != "required; stage validate has good, poor" {
			t.Errorf("no verdict: got %v, want that it is required", err)
		}
		w.complete(work, job.Answer{Verdict: "good"})
		if got, err := w.Get(w.ctx, j.ID); err != nil || got.Items.Integrated != 1 {
			t.Errorf("got %+v, %v, want the item integrated", got.Items, err)
		}
	})
}

func TestFailedItemsOfARunningJobAreTriedAgain(t *testing.T) {
	both(t, nil, func(t *testing.T, w *world) {
		j := w.create(job.Request{})
		creator := w.take("creator", "c1") // keeps the job open
		w.add(creator, "a", "b")
		for range 2 {
			if err := w.Fail(w.ctx, w.take("validator", "v"), permanent{errors.New("no model")}, 0, true); err != nil {
				t.Fatal(err)
			}
		}
		if n, err := w.Retry(w.ctx, j.ID); err != nil || n != 2 {
			t.Fatalf("retry: got %d items, %v; want 2", n, err)
		}
		for range 2 {
			w.complete(w.take("validator", "v"), job.Answer{})
		}
		w.complete(creator, job.Answer{})
		if done := w.until(j.ID, job.Completed); done.Items.Integrated != 2 || done.Items.Failed != 0 {
			t.Errorf("items: got %+v, want both integrated", done.Items)
		}
		if _, err := w.Retry(w.ctx, j.ID); !errors.Is(err, job.ErrTerminal) {
			t.Errorf("a job that has ended: got %v, want %v", err, job.ErrTerminal)
		}
	})
}

// Wait tells the progress until the job has ended, however it ends.
func TestWaitTellsProgressUntilTheEnd(t *testing.T) {
	both(t, nil, func(t *testing.T, w *world) {
		for _, want := range []job.Status{job.Completed, job.Cancelled} {
			j := w.create(job.Request{})
			first := w.take("creator", "c1")
			var told []job.Status
			got, err := w.Wait(w.ctx, j.ID, 10*time.Millisecond, func(p job.Progress) {
				if told = append(told, p.Status); len(told) > 1 {
					return
				}
				if want == job.Cancelled {
					_, err := w.Cancel(w.ctx, j.ID, false)
					if err != nil {
						t.Error(err)
					}
					return
				}
				w.complete(first, job.Answer{})
			})
			if err != nil || got.Status != want || len(told) < 2 || told[0] != job.Processing || told[len(told)-1] != want {
				t.Errorf("wait: got %s, %v, told %v; want %s, first processing", got.Status, err, told, want)
			}
		}
		if _, err := w.Wait(w.ctx, "none", time.Second, nil); !errors.Is(err, job.ErrNotFound) {
			t.Errorf("an unknown job: got %v, want %v", err, job.ErrNotFound)
		}
	})
}
