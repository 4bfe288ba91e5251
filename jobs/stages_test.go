package jobs_test

import (
	"errors"
	"strings"
	"testing"

	"muster/internal/testutil"
	"muster/jobs"
)

// A person can end a stage, whether its work waits or an agent holds it; the other stages continue.
func TestStageIsEndedByHand(t *testing.T) {
	both(t, nil, func(t *testing.T, w *world) {
		j := w.create(jobs.Request{})
		creator := w.take("creator", "c1")
		w.add(creator, "a", "b")
		w.complete(w.take("validator", "v1"), jobs.Answer{})
		got, err := w.CompleteStage(w.ctx, j.ID, "create", "")
		if err != nil || got.Stages[0].Status != jobs.StageCompleted || got.Stages[1].Status != jobs.StageProcessing || got.Items.Pending != 1 {
			t.Fatalf("a stage that an agent holds: %+v, %v", got, err)
		}
		if _, err := w.CompleteStage(w.ctx, j.ID, "create", "too late"); !errors.Is(err, jobs.ErrStageEnded) {
			t.Errorf("fail a completed stage: got %v, want %v", err, jobs.ErrStageEnded)
		}
		if _, err := w.Beat(w.ctx, creator); !errors.Is(err, jobs.ErrLeaseLost) {
			t.Errorf("its agent: got %v, want %v", err, jobs.ErrLeaseLost)
		}
		testutil.Must(w.CompleteStage(w.ctx, j.ID, "validate", ""))(t)
		done := w.until(j.ID, jobs.Completed)
		if want := (jobs.Counts{Total: 2, Integrated: 1, Rejected: 1}); done.Items != want {
			t.Errorf("items: got %+v, want %+v", done.Items, want)
		}
		if _, err := w.CompleteStage(w.ctx, j.ID, "create", ""); !errors.Is(err, jobs.ErrTerminal) {
			t.Errorf("a job that has ended: got %v, want %v", err, jobs.ErrTerminal)
		}

		j = w.create(jobs.Request{})
		w.until(j.ID, jobs.Processing)
		if _, err := w.CompleteStage(w.ctx, j.ID, "none", ""); !errors.As(err, new(*jobs.FieldError)) {
			t.Errorf("an unknown stage: %v", err)
		}
		got, err = w.CompleteStage(w.ctx, j.ID, "create", "the scan is unreadable")
		if err != nil || got.Status != jobs.Failed || !strings.Contains(got.ErrorMessage, "the scan is unreadable") || got.CompletedAt.IsZero() {
			t.Errorf("a stage that failed by hand: %+v, %v", got, err)
		}
		if st := got.Stages[0]; st.Status != jobs.StageFailed || st.Error != "the scan is unreadable" || got.Stages[1].Status != jobs.StagePending ||
			!strings.Contains(string(got.ErrorDetails), "the scan is unreadable") {
			t.Errorf("a stage that failed by hand: stages %+v, details %s", got.Stages, got.ErrorDetails)
		}
	})
}
