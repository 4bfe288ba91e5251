package tasks_test

import (
	"errors"
	"testing"
	"time"

	"muster/internal/testutil"
	"muster/tasks"
	"muster/tasks/tasktype"
)

func TestRetry(t *testing.T) {
	t.Parallel()
	runStories(t, []story{
		{"errors", func(t *testing.T, w *world) {
			client := w.client
			done := sent(t, w, ID.S(1))
			ended(t, w, done.ID())
			running := sent(t, w, ID.S(1, tasks.In(time.Hour)))
			revoked := sent(t, w, ID.S(1, tasks.In(time.Hour)))
			testutil.Ok(t, revoked.Revoke(t.Context()))
			forgotten, damaged := sent(t, w, Fail.S(1)), sent(t, w, Fail.S(1))
			ended(t, w, forgotten.ID())
			testutil.Ok(t, forgotten.Delete(t.Context()))
			ended(t, w, damaged.ID())
			other := newClient(t, client.Redis()) // without the graph in memory
			testutil.Ok(t, client.Redis().HSet(t.Context(), flowKey(t, client.Redis(), damaged.ID()), "g", "{").Err())
			for id, want := range map[string]error{done.ID(): tasks.ErrEnded, running.ID(): tasks.ErrRunning, revoked.ID(): tasks.ErrRevoked,
				forgotten.ID(): tasks.ErrNotFound, "none": tasks.ErrNotFound, damaged.ID(): tasks.ErrDamaged} {
				if err := other.Workflow(id).Retry(t.Context()); !errors.Is(err, want) {
					t.Errorf("got %v, want %v", err, want)
				}
			}
			if err := running.Revoke(t.Context()); err != nil { // FlushDB empties one node of a cluster only
				t.Fatal(err)
			}
		}},
		{"all", func(t *testing.T, w *world) {
			const n = 1200 // more than two pages
			ids := make([]string, n)
			for i := range n {
				s := Fail.S(i)
				if i%3 == 0 {
					s = ID.S(i)
				}
				ids[i] = sent(t, w, s, tasks.Labels(map[string]string{"half": []string{"a", "b"}[i%2]})).ID()
			}
			settled := func() {
				testutil.Eventually(t, "no workflow is running", func() bool {
					counts, err := w.client.Inspect().CountWorkflows(t.Context())
					return err == nil && counts[tasktype.WorkflowRunning] == 0
				})
			}
			settled()
			if got, err := w.client.RetryAll(t.Context(), tasktype.WorkflowFilter{State: tasktype.WorkflowSucceeded}); err == nil {
				t.Errorf("got %d retries of successes, want an error", got)
			}
			for _, half := range []string{"a", "b"} {
				if got, err := w.client.RetryAll(t.Context(), tasktype.WorkflowFilter{Labels: map[string]string{"half": half}}); err != nil || got != n/3 {
					t.Errorf("got %d retries, %v, want %d", got, err, n/3)
				}
			}
			settled()
			for i, id := range ids {
				if got, want := w.ran(id+".0"), min(2, 1+i%3); got != want {
					t.Errorf("workflow %d ran %d times, want %d", i, got, want)
				}
			}
		}},
		{"retention", func(t *testing.T, w *world) {
			client := newClient(t, w.client.Redis(), tasks.SendDefaults(tasks.FailureRetention(48*time.Hour), tasks.Retention(time.Hour)))
			for _, c := range []struct {
				client *tasks.Client
				s      tasks.Signature[int]
				opts   []tasks.SendOption
				want   time.Duration
			}{
				{w.client, ID.S(1), nil, 24 * time.Hour},
				{w.client, Fail.S(1), nil, 7 * 24 * time.Hour},
				{client, ID.S(1), nil, time.Hour},
				{client, Fail.S(1), nil, 48 * time.Hour},
				{client, Fail.S(1), []tasks.SendOption{tasks.FailureRetention(2 * time.Hour)}, 2 * time.Hour},
			} {
				run := started(t, c.client, c.s, c.opts...)
				ended(t, w, run.ID())
				if ttl := w.client.Redis().PTTL(t.Context(), flowKey(t, w.client.Redis(), run.ID())).Val(); ttl > c.want || ttl < c.want-time.Minute {
					t.Errorf("got %v, want %v", ttl, c.want)
				}
			}
		}},
	})
}

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
			if counts, err := w.client.Inspect().CountWorkflows(t.Context()); err != nil || counts[tasktype.WorkflowFailed] < n {
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
			if err := w.client.Workflow("none").Cancel(t.Context()); !errors.Is(err, tasks.ErrNotFound) {
				t.Errorf("of an unknown workflow: got %v, want %v", err, tasks.ErrNotFound)
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
