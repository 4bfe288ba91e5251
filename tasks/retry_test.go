package tasks_test

import (
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"muster/internal/testutil"
	"muster/tasks"
	"muster/tasks/tasktype"
)

func TestRetry(t *testing.T) {
	t.Parallel()
	runStories(t, []story{
		{"100 at once", func(t *testing.T, w *world) {
			run := sent(t, w, tasks.Chain(tasks.Chain(ID.S(1), Fail), Inc))
			ended(t, w, run.ID())
			rest(t, w, "default")
			errs := make([]error, 100)
			var calls sync.WaitGroup
			for i := range errs {
				calls.Go(func() { errs[i] = run.Retry(t.Context()) })
			}
			calls.Wait()
			done := 0
			for _, err := range errs {
				if err == nil {
					done++
				} else if !errors.Is(err, tasks.ErrRunning) {
					t.Errorf("got %v, want %v", err, tasks.ErrRunning)
				}
			}
			if done != 1 {
				t.Errorf("%d of 100 retries had an effect, want 1", done)
			}
			if s, err := run.Status(t.Context()); err != nil || s != tasktype.Started {
				t.Errorf("status after the retry: got %s, %v, want %s", s, err, tasktype.Started)
			}
			list, _, err := w.client.Workflows(t.Context(), tasktype.WorkflowFilter{})
			if err != nil || len(list) != 1 || list[0].State != tasktype.WorkflowRunning {
				t.Errorf("listing after the retry: got %+v, %v, want one running workflow", list, err)
			}
			if err := w.client.ResumeQueue(t.Context(), "default"); err != nil {
				t.Fatal(err)
			}
			ended(t, w, run.ID())
			if n0, n1 := w.ran(run.ID()+".0"), w.ran(run.ID()+".1"); n0 != 1 || n1 != 2 {
				t.Errorf("got %d and %d runs, want 1 and 2", n0, n1)
			}
		}},
		{"cancelled tasks that were ready", func(t *testing.T, w *world) {
			rest(t, w, "default")
			run := sent(t, w, tasks.Chord(tasks.Group(ID.S(1), ID.S(2), ID.S(3)), Sum), tasks.FairnessKey("k"))
			other := sent(t, w, ID.S(7), tasks.FairnessKey("k"))
			for range 3 {
				if err := run.Cancel(t.Context()); err != nil {
					t.Fatal(err)
				}
				if err := run.Retry(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			if queues, err := w.client.Queues(t.Context()); err != nil || !slices.ContainsFunc(queues, func(q tasktype.Queue) bool { return q.Name == "default" && q.Pending == 4 }) {
				t.Errorf("got queues %+v, %v, want 4 ready tasks", queues, err)
			}
			if err := w.client.ResumeQueue(t.Context(), "default"); err != nil {
				t.Fatal(err)
			}
			if got, err := run.Wait(limited(t)); err != nil || got != 6 {
				t.Errorf("got %d, %v, want 6", got, err)
			}
			if got, err := other.Wait(limited(t)); err != nil || got != 7 {
				t.Errorf("got %d, %v, want 7", got, err)
			}
			ended(t, w, run.ID())
			for _, node := range []string{".0", ".1", ".2"} {
				if n := w.ran(run.ID() + node); n != 1 {
					t.Errorf("node %s ran %d times, want once", node, n)
				}
			}
		}},
		{"errors", func(t *testing.T, w *world) {
			client := w.client
			done := sent(t, w, ID.S(1))
			ended(t, w, done.ID())
			running := sent(t, w, ID.S(1, tasks.In(time.Hour)))
			revoked := sent(t, w, ID.S(1, tasks.In(time.Hour)))
			if err := revoked.Revoke(t.Context()); err != nil {
				t.Fatal(err)
			}
			forgotten, damaged := sent(t, w, Fail.S(1)), sent(t, w, Fail.S(1))
			ended(t, w, forgotten.ID())
			if err := forgotten.Forget(t.Context()); err != nil {
				t.Fatal(err)
			}
			ended(t, w, damaged.ID())
			other := tasks.NewClient(client.Redis()) // without the graph in memory
			t.Cleanup(func() { _ = other.Close() })
			if err := client.Redis().HSet(t.Context(), flowKey(t, client.Redis(), damaged.ID()), "g", "{").Err(); err != nil {
				t.Fatal(err)
			}
			for id, want := range map[string]error{done.ID(): tasks.ErrSucceeded, running.ID(): tasks.ErrRunning, revoked.ID(): tasks.ErrRevoked,
				forgotten.ID(): tasks.ErrUnknown, "none": tasks.ErrUnknown, damaged.ID(): tasks.ErrDamaged} {
				if err := other.Retry(t.Context(), id); !errors.Is(err, want) {
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
					counts, err := w.client.CountWorkflows(t.Context())
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
			client := tasks.NewClient(w.client.Redis(), tasks.FailureRetention(48*time.Hour), tasks.Retention(time.Hour))
			t.Cleanup(func() { _ = client.Close() })
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
				run, err := c.s.Send(t.Context(), c.client, c.opts...)
				if err != nil {
					t.Fatal(err)
				}
				ended(t, w, run.ID())
				if ttl := w.client.Redis().PTTL(t.Context(), flowKey(t, w.client.Redis(), run.ID())).Val(); ttl > c.want || ttl < c.want-time.Minute {
					t.Errorf("got %v, want %v", ttl, c.want)
				}
			}
		}},
	})
}
