package tasks_test

import (
	"errors"
	"testing"
	"time"

	"muster/internal/testutil"
	"muster/tasks"
	"muster/tasks/tasktype"
)

func TestCancel(t *testing.T) {
	t.Parallel()
	runStories(t, []story{
		{"all", func(t *testing.T, w *world) {
			const n = 520 // more than a page
			for i := range n {
				sent(t, w, tasks.Chain(ID.S(i), Inc), tasks.In(time.Hour), tasks.Labels(map[string]string{"half": []string{"a", "b"}[i%2]}))
			}
			if got, err := w.client.CancelAll(t.Context(), tasktype.WorkflowFilter{State: tasktype.WorkflowFailed}); err == nil {
				t.Errorf("got %d cancelled failures, want an error", got)
			}
			for _, half := range []string{"a", "b"} { // the stories of a Cluster share its workflows
				if got, err := w.client.CancelAll(t.Context(), tasktype.WorkflowFilter{Labels: map[string]string{"half": half}}); err != nil || got != n/2 {
					t.Errorf("got %d, %v, want %d", got, err, n/2)
				}
			}
			if counts, err := w.client.CountWorkflows(t.Context()); err != nil || counts[tasktype.WorkflowFailed] < n {
				t.Errorf("got %v, %v, want %d failures", counts, err, n)
			}
		}},
		{"errors", func(t *testing.T, w *world) {
			done := sent(t, w, ID.S(1))
			if _, err := done.Wait(limited(t)); err != nil {
				t.Fatal(err)
			}
			ended(t, w, done.ID())
			if err := done.Cancel(t.Context()); !errors.Is(err, tasks.ErrEnded) {
				t.Errorf("of a workflow that has ended: got %v, want %v", err, tasks.ErrEnded)
			}
			if err := w.client.Cancel(t.Context(), "none"); !errors.Is(err, tasks.ErrUnknown) {
				t.Errorf("of an unknown workflow: got %v, want %v", err, tasks.ErrUnknown)
			}
			revoked := sent(t, w, ID.S(1, tasks.In(time.Hour)))
			testutil.Ok(t, revoked.Revoke(t.Context()))
			if err := revoked.Cancel(t.Context()); !errors.Is(err, tasks.ErrRevoked) {
				t.Errorf("of a revoked workflow: got %v, want %v", err, tasks.ErrRevoked)
			}
			twice := sent(t, w, ID.S(1, tasks.In(time.Hour)))
			for range 2 {
				if err := twice.Cancel(t.Context()); err != nil {
					t.Errorf("cancel: got %v", err)
				}
			}
		}},
	})
}
