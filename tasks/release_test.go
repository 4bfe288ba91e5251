package tasks_test

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"muster/internal/testutil"
	"muster/tasks"
	"muster/tasks/tasktype"
)

// putBack reads from the record of a node when it is due again and how often it was put back for want of any worker.
// ok is false while it does not wait.
func putBack(t *testing.T, rdb redis.UniversalClient, key, node string) (due string, times int, ok bool) {
	t.Helper()
	parts := strings.Split(rdb.HGet(t.Context(), key, node).Val(), "|")
	if len(parts) < 6 || parts[0] != "D" {
		return "", 0, false
	}
	times, err := strconv.Atoi(parts[2])
	if err != nil {
		t.Fatal(err)
	}
	return parts[3], times, true
}

// putBackAgain waits until a node was put back n times.
func putBackAgain(t *testing.T, rdb redis.UniversalClient, key, node string, n int) {
	t.Helper()
	seen := map[string]bool{}
	testutil.Eventually(t, "it is put back again and again", func() bool {
		if due, _, ok := putBack(t, rdb, key, node); ok {
			seen[due] = true
		}
		return len(seen) >= n
	})
}

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
			if err := run.Revoke(t.Context()); err != nil {
				t.Fatal(err)
			}
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

// A task whose handler only some of the live workers of its queue have gets to one of them, however often
// others take it.
func TestTaskGetsToTheWorkerThatHandlesIt(t *testing.T) {
	t.Parallel()
	inWorlds(t, func(t *testing.T, w *world) {
		rdb := w.client.Redis()
		rare := tasks.New[int, int]("t.rare")
		alive(t, rdb, map[string]any{"name": "expert", "queues": map[string]int{"default": 1}, "tasks": []string{"t.rare"}})
		resume := pause(t, w)
		run := sent(t, w, tasks.Chain(rare.S(1), Inc))
		setDeaths(t, rdb, 8) // a task without any handler would fail now
		resume()
		putBackAgain(t, rdb, flowKey(t, rdb, run.ID()), "0", 3)
		if p, err := run.Progress(t.Context()); err != nil || p.Ended {
			t.Fatalf("ended: %+v, %v", p, err)
		}
		if n := nodes(t, w, run.ID())[0]; !strings.Contains(n.Message, "no handler") {
			t.Errorf("the reason is missing: %+v", n)
		}
		startRare(t, w, "newcomer", rare)
		if got, err := run.Wait(limited(t)); err != nil || got != 2 {
			t.Fatalf("got %v, %v, want 2", got, err)
		}
	})
}

// startRare starts a worker that has a handler for one task.
func startRare(t *testing.T, w *world, name string, task tasks.Task[int, int]) {
	t.Helper()
	m := tasks.NewMux()
	tasks.Handle(m, task, func(_ context.Context, n int) (int, error) { return n, nil })
	worker, err := tasks.NewWorker(w.client, m, tasks.WorkerConfig{Name: name, Concurrency: 1, Grace: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	during(t, worker.Run)
}

// A task that no live worker has a handler for waits for one that is about to start.
func TestTaskWaitsForAWorkerThatHandlesIt(t *testing.T) {
	t.Parallel()
	inWorlds(t, func(t *testing.T, w *world) {
		rdb := w.client.Redis()
		late := tasks.New[int, int]("t.late")
		run := sent(t, w, tasks.Chain(late.S(1), Inc))
		putBackAgain(t, rdb, flowKey(t, rdb, run.ID()), "0", 2)
		startRare(t, w, "late", late)
		if got, err := run.Wait(limited(t)); err != nil || got != 2 {
			t.Fatalf("got %v, %v, want 2", got, err)
		}
		ended(t, w, run.ID())
	})
}

// A task without a worker fails with the reason.
func TestTaskThatNoWorkerHandlesFails(t *testing.T) {
	t.Parallel()
	inWorlds(t, func(t *testing.T, w *world) {
		rdb := w.client.Redis()
		resume := pause(t, w)
		run := sent(t, w, tasks.Chain(tasks.New[int, int]("t.unheard").S(1), Inc))
		setDeaths(t, rdb, 7)
		resume()
		key := flowKey(t, rdb, run.ID())
		var due string
		testutil.Eventually(t, "it waits for the last time", func() bool {
			var times int
			var ok bool
			due, times, ok = putBack(t, rdb, key, "0")
			return ok && times == 8
		})
		at, err := strconv.ParseInt(due, 10, 64)
		if wait := time.Until(time.UnixMilli(at)); err != nil || wait < 10*time.Second || wait > 30*time.Second {
			t.Errorf("it waits for %v, %v, want about 25 s", wait, err)
		}
		agendaNow(t, rdb)
		_, err = run.Wait(limited(t))
		if f := wantFailure(t, err, "no worker of queue default has a handler for t.unheard"); f.Code != tasktype.CodeUnregistered {
			t.Errorf("got code %q, want %q", f.Code, tasktype.CodeUnregistered)
		}
		ended(t, w, run.ID())
	})
}

// A workflow of a release that no worker knows fails with the reason.
func TestWorkflowOfAnUnknownReleaseEnds(t *testing.T) {
	t.Parallel()
	inWorlds(t, func(t *testing.T, w *world) {
		rdb := w.client.Redis()
		if _, err := send(t, w, ID.S(1)); err != nil {
			t.Fatal(err)
		}
		resume := pause(t, w)
		sender := tasks.NewClient(rdb) // another process: the worker has never seen the workflow
		t.Cleanup(func() { _ = sender.Close() })
		run, err := tasks.Chain(ID.S(1), Inc).Send(t.Context(), sender)
		if err != nil {
			t.Fatal(err)
		}
		key := flowKey(t, rdb, run.ID())
		graph := rdb.HGet(t.Context(), key, "g").Val()
		rdb.HSet(t.Context(), key, "g", strings.Replace(graph, "{", `{"v":99,`, 1))
		resume()
		testutil.Eventually(t, "it is given up", func() bool { return rdb.HExists(t.Context(), key, "!").Val() })
		for _, c := range []*tasks.Client{w.client, sender} {
			_, err := tasks.Attach[int](c, run.ID()).Wait(limited(t))
			if f := wantFailure(t, err, "version 99"); f.Code != tasktype.CodeDamaged {
				t.Errorf("got %+v", f)
			}
		}
		if p, err := run.Progress(t.Context()); err != nil || !p.Ended || p.Status != tasktype.Failed {
			t.Errorf("got %+v, %v", p, err)
		}
		if ttl := rdb.PTTL(t.Context(), key).Val(); ttl <= 0 {
			t.Errorf("time to live %v", ttl)
		}
		if got, err := send(t, w, ID.S(2)); err != nil || got != 2 {
			t.Errorf("another workflow: got %v, %v", got, err)
		}
	})
}
