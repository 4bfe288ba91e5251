package tasks_test

import (
	"context"
	"maps"
	"slices"
	"testing"
	"time"

	"muster/internal/testutil"
	"muster/tasks"
	"muster/tasks/tasktype"
)

// A node that no live worker would take has a reason, instead of looking like one that is about to start.
func TestNodeWithoutWorkerHasReason(t *testing.T) {
	t.Parallel()
	inWorlds(t, func(t *testing.T, w *world) {
		unheard := tasks.New[int, int]("t.unheard")
		why := func(s tasks.Signature[int]) (out []string) {
			run := sent(t, w, s)
			for _, n := range nodes(t, w, run.ID()) {
				out = append(out, n.Waits)
			}
			testutil.Ok(t, run.Revoke(t.Context()))
			return out
		}
		want := func(got []string, want ...string) {
			t.Helper()
			if !slices.Equal(got, want) {
				t.Errorf("got %q, want %q", got, want)
			}
		}
		want(why(tasks.Chain(ID.S(1, tasks.Queue("unserved")), Inc)), "no live worker takes from queue unserved", "")
		want(why(ID.S(1, tasks.In(time.Hour))), "") // time will bring it
		resume := pause(t, w)
		want(why(ID.S(1)), "queue default is paused")
		want(why(tasks.Chain(unheard.S(1), Inc)), "no live worker of queue default has a handler for t.unheard", "")
		w.worker.Kill()
		testutil.Eventually(t, "the worker is gone", func() bool {
			ws, err := w.client.Workers(t.Context())
			return err == nil && len(ws) == 0
		})
		want(why(ID.S(1)), "no worker is live")
		resume()
	})
}

// startRare starts a worker that has a handler for one task.
func startRare(t *testing.T, w *world, name string, task tasks.Task[int, int]) {
	t.Helper()
	m := tasks.NewMux()
	tasks.Handle(m, task, func(_ context.Context, n int) (int, error) { return n, nil })
	worker, err := tasks.NewWorker(w.client, m, tasks.WorkerConfig{Name: name, Concurrency: 1, Grace: time.Second})
	testutil.Ok(t, err)
	during(t, worker.Run)
}

// A task that no live worker has a handler for waits for one, and says so. A worker of another queue with the handler does not take it.
func TestTaskWaitsForAWorkerThatHandlesIt(t *testing.T) {
	t.Parallel()
	inWorlds(t, func(t *testing.T, w *world) {
		late := tasks.New[int, int]("t.deployed")
		run := sent(t, w, tasks.Chain(late.S(1), Inc))
		waits := func() (n tasktype.Node, ok bool) {
			n = nodes(t, w, run.ID())[0]
			return n, time.Until(n.Due) > 23*time.Hour
		}
		testutil.Eventually(t, "it waits", func() bool { _, ok := waits(); return ok })
		if n, _ := waits(); n.Waits != "no live worker of queue default has a handler for t.deployed" || n.Status != tasktype.Pending {
			t.Errorf("got %+v, want that it waits for a handler", n)
		}
		if qs, err := w.client.Queues(t.Context()); err != nil || len(qs) != 1 || !maps.Equal(qs[0].Unhandled, map[string]int64{"t.deployed": 1}) {
			t.Errorf("got %+v, %v, want one task without a handler", qs, err)
		}
		startRare(t, w, "late", late)
		wantValue(t, run, 2)
		ended(t, w, run.ID())
	})
}

// A task without a handler can be cancelled, and expires.
func TestTaskWithoutAHandlerEnds(t *testing.T) {
	t.Parallel()
	inWorlds(t, func(t *testing.T, w *world) {
		unheard := tasks.New[int, int]("t.unheard")
		run := sent(t, w, tasks.Chain(unheard.S(1), Inc))
		testutil.Eventually(t, "it waits", func() bool { return !nodes(t, w, run.ID())[0].Due.IsZero() })
		testutil.Ok(t, run.Cancel(t.Context()))
		_, err := run.Wait(limited(t))
		if f := wantFailure(t, err, "cancelled"); f.Code != tasktype.CodeCancelled {
			t.Errorf("got code %q, want %q", f.Code, tasktype.CodeCancelled)
		}
		_, err = sent(t, w, unheard.S(1, tasks.Expires(100*time.Millisecond))).Wait(limited(t))
		if f := wantFailure(t, err, "expired"); f.Code != tasktype.CodeExpired {
			t.Errorf("got code %q, want %q", f.Code, tasktype.CodeExpired)
		}
	})
}
